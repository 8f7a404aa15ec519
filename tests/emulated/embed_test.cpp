// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The kernels of embeddings against their twins: bit for bit on the emulated GPU, to rounding on
// another.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/embed/gpu_distances.h"
#include "kernels/embed/gpu_edges.h"
#include "kernels/embed/gpu_losses.h"
#include "kernels/embed/gpu_updates.h"
#include "tests/emulated/tests.h"

namespace lsm::testing {
namespace {

std::vector<float> random_floats(Random& random, int64_t count) {
  std::vector<float> drawn(static_cast<size_t>(count));
  for (float& value : drawn) value = static_cast<float>(random.between(-1000, 1000)) / 500;
  return drawn;
}

template <class T>
std::vector<T> random_ids(Random& random, int64_t count, int64_t end) {
  std::vector<T> drawn(static_cast<size_t>(count));
  for (T& value : drawn) value = static_cast<T>(random.between(0, end - 1));
  return drawn;
}

/// Memory of the GPU that a kernel changes, and the host's that its twin does.
class Both {
 public:
  explicit Both(std::vector<float> values) : host(std::move(values)), gpu_(bytes_of(host)) {}

  std::vector<float> host;
  float* on_gpu() const { return gpu_.as<float>(); }
  /// A GPU may err by rounding: 1e-5 of the largest number, about 100 roundings of float32.
  bool are_equal() const {
    const std::vector<std::byte> fetched = gpu_.fetch();
    if (kRoundsAsHost) return std::ranges::equal(fetched, bytes_of(host));
    std::vector<float> got(host.size());
    std::memcpy(got.data(), fetched.data(), fetched.size());
    float largest = 0;
    for (const float value : host) largest = std::max(largest, std::abs(value));
    return std::ranges::equal(got, host,
                              [&](float a, float b) { return std::abs(a - b) <= 1e-5f * largest; });
  }

 private:
  const GpuBytes gpu_;
};

TEST_CASE("GPU embed updates") {
  constexpr int64_t kRows = 60;
  Random random(3);
  const CudaStream stream(kDevice);
  const auto number = reinterpret_cast<intptr_t>(stream.get());
  for (const int64_t dim : {1, 100, 130}) {
    for (const int64_t width : {2 * dim, dim + 1}) {
      for (const int64_t most : is_part() ? std::vector<int64_t>{2} : std::vector<int64_t>{2, 60}) {
        constexpr int64_t kCount = 520;
        auto rows = random_ids<int32_t>(random, kCount, most);
        std::ranges::sort(rows);
        std::vector<int64_t> places(kCount);
        std::iota(places.rbegin(), places.rend(), 0);
        const auto values = random_floats(random, kCount * dim);
        const int64_t pieces = 2 * SortedGradients::num_windows(kCount);
        std::vector<float> start = random_floats(random, kRows * width);
        for (float& value : start) value = std::abs(value);
        Both table(start), sums(random_floats(random, kRows * dim));
        std::vector<float> partial(static_cast<size_t>(pieces * dim));
        const GpuBytes gpu_rows(bytes_of(rows)), gpu_places(bytes_of(places)),
            gpu_values(bytes_of(values)), gpu_partial(partial.size() * sizeof(float));
        const SortedGradients host{rows.data(), places.data(), values.data(),
                                   kCount,      dim,           partial.data()};
        const SortedGradients gpu{
            gpu_rows.as<int32_t>(), gpu_places.as<int64_t>(), gpu_values.as<float>(), kCount, dim,
            gpu_partial.as<float>()};
        update_rows_on_gpu(gpu, {table.on_gpu(), kRows, dim, width, 0.1f, 1e-3f}, kDevice, number);
        sum_rows_on_gpu(gpu, sums.on_gpu(), kDevice, number);
        check_cuda(cudaStreamSynchronize(stream.get()), "updates");
        update_rows_by_twin(host, {table.host.data(), kRows, dim, width, 0.1f, 1e-3f});
        sum_rows_by_twin(host, sums.host.data());
        LSM_EXPECT(table.are_equal(), "updates of ", dim, " of ", width, " floats");
        LSM_EXPECT(sums.are_equal(), "sums of ", dim, " floats");
      }
    }
  }
}

constexpr EdgeModel kModels[] = {{Operator::kIdentity, Comparator::kDot},
                                 {Operator::kElementProduct, Comparator::kDot},
                                 {Operator::kComplexProduct, Comparator::kDot},
                                 {Operator::kTranslation, Comparator::kManhattan},
                                 {Operator::kTranslation, Comparator::kEuclidean},
                                 {Operator::kRotation, Comparator::kModulus}};

std::string name_of(const EdgeModel& model) {
  return std::to_string(static_cast<int>(model.query)) + " by " +
         std::to_string(static_cast<int>(model.score));
}

TEST_CASE("GPU embed edges") {
  constexpr int64_t kEdges = 37, kNodes = 20, kRelations = 4, kDim = 70, kWidth = 2 * kDim;
  Random random(4);
  const CudaStream stream(kDevice);
  const auto number = reinterpret_cast<intptr_t>(stream.get());
  const auto floats = [&](int64_t count) { return random_floats(random, count); };
  for (const EdgeModel model : kModels) {
    LSM_EXPECT(has_gpu_kernels(model), "model ", name_of(model));
    const auto entities = floats(kNodes * kWidth), relations = floats(kRelations * kWidth);
    const auto dropout = floats(2 * kEdges * kDim), of_queries = floats(2 * kEdges * kDim);
    const auto ends = random_ids<int64_t>(random, 2 * kEdges, kNodes);
    const auto relation_rows = random_ids<int64_t>(random, 2 * kEdges, kRelations);
    const GpuBytes gpu_entities(bytes_of(entities)), gpu_relations(bytes_of(relations)),
        gpu_dropout(bytes_of(dropout)), gpu_of_queries(bytes_of(of_queries)),
        gpu_ends(bytes_of(ends)), gpu_relation_rows(bytes_of(relation_rows));
    EdgeBatch host{model,   true,   kEdges,      kDim,    entities.data(), kWidth,
                   nullptr, kWidth, ends.data(), nullptr, dropout.data()};
    EdgeBatch gpu{model,
                  true,
                  kEdges,
                  kDim,
                  gpu_entities.as<float>(),
                  kWidth,
                  nullptr,
                  kWidth,
                  gpu_ends.as<int64_t>(),
                  nullptr,
                  gpu_dropout.as<float>()};
    if (model.query != Operator::kIdentity) {
      host.relations = relations.data();
      host.relation_rows = relation_rows.data();
      gpu.relations = gpu_relations.as<float>();
      gpu.relation_rows = gpu_relation_rows.as<int64_t>();
    }
    Both queries(floats(2 * kEdges * kDim)), positives(floats(2 * kEdges));
    Both of_ends(floats(2 * kEdges * kDim)), of_relations(floats(2 * kEdges * kDim));
    Both losses(floats(2 * kEdges));
    const auto penalty = model.query == Operator::kRotation ? Penalty::kModuli : Penalty::kFloats;
    form_queries_on_gpu(gpu, {queries.on_gpu(), positives.on_gpu()}, kDevice, number);
    edge_gradients_on_gpu(gpu,
                          {gpu_of_queries.as<float>(), positives.on_gpu(), of_ends.on_gpu(),
                           of_relations.on_gpu(), losses.on_gpu(), penalty, 0.25f},
                          kDevice, number);
    check_cuda(cudaStreamSynchronize(stream.get()), "edges");
    form_queries_by_twin(host, {queries.host.data(), positives.host.data()});
    edge_gradients_by_twin(host, {of_queries.data(), positives.host.data(), of_ends.host.data(),
                                  of_relations.host.data(), losses.host.data(), penalty, 0.25f});
    LSM_EXPECT(queries.are_equal() && positives.are_equal(), "queries of model ", name_of(model));
    LSM_EXPECT(of_ends.are_equal() && of_relations.are_equal() && losses.are_equal(),
               "gradients of model ", name_of(model));
  }
}

TEST_CASE("GPU embed distances") {
  constexpr int64_t kChunks = 2, kQueries = 11, kEntities = 165, kDim = 70;
  Random random(6);
  const CudaStream stream(kDevice);
  const auto number = reinterpret_cast<intptr_t>(stream.get());
  const auto queries = random_floats(random, kChunks * kQueries * kDim);
  const auto entities = random_floats(random, kChunks * kEntities * kDim);
  std::vector<float> transposed(entities.size());
  for (int64_t row = 0; row < kChunks * kEntities; ++row) {
    const int64_t chunk = row / kEntities, entity = row % kEntities;
    for (int64_t d = 0; d < kDim; ++d) {
      transposed[(chunk * kDim + d) * kEntities + entity] = entities[row * kDim + d];
    }
  }
  const auto of_scores = random_floats(random, kChunks * kQueries * kEntities);
  const GpuBytes gpu_queries(bytes_of(queries)), gpu_entities(bytes_of(entities)),
      gpu_transposed(bytes_of(transposed)), gpu_of_scores(bytes_of(of_scores));
  for (const Comparator comparator : {Comparator::kManhattan, Comparator::kModulus}) {
    for (const bool adds : {false, true}) {
      const DistanceChunks host{comparator, kChunks,        kQueries,        kEntities,
                                kDim,       queries.data(), entities.data(), transposed.data()};
      DistanceChunks gpu = host;
      gpu.queries = gpu_queries.as<float>();
      gpu.entities = gpu_entities.as<float>();
      gpu.transposed = gpu_transposed.as<float>();
      Both scores(of_scores), of_queries(queries), of_entities(entities);
      distances_on_gpu(gpu, scores.on_gpu(), kDevice, number);
      distance_gradients_on_gpu(
          gpu, {gpu_of_scores.as<float>(), of_queries.on_gpu(), of_entities.on_gpu(), adds},
          kDevice, number);
      check_cuda(cudaStreamSynchronize(stream.get()), "distances");
      distances_by_twin(host, scores.host.data());
      distance_gradients_by_twin(
          host, {of_scores.data(), of_queries.host.data(), of_entities.host.data(), adds});
      const int name = static_cast<int>(comparator);
      LSM_EXPECT(scores.are_equal(), "distances of comparator ", name);
      LSM_EXPECT(of_queries.are_equal() && of_entities.are_equal(), "gradients of comparator ",
                 name);
    }
  }
}

TEST_CASE("GPU embed losses") {
  constexpr int64_t kEdges = 25, kChunk = 10, kNegatives = 75;
  Random random(5);
  const CudaStream stream(kDevice);
  for (const EdgeLoss loss : {EdgeLoss::kSoftmax, EdgeLoss::kLogistic, EdgeLoss::kMargin}) {
    const auto negatives = random_ids<int32_t>(random, 3 * kNegatives, 30);
    const auto targets = random_ids<int32_t>(random, kEdges, 30);
    const auto firsts = random_ids<int32_t>(random, kEdges, 30);
    const GpuBytes gpu_negatives(bytes_of(negatives)), gpu_targets(bytes_of(targets));
    const GpuBytes gpu_firsts(bytes_of(firsts));
    Both scores(random_floats(random, kEdges * kNegatives));
    Both positives(random_floats(random, kEdges)), losses(random_floats(random, kEdges));
    ScoredEdges edges{loss,
                      1.5f,
                      0.5f,
                      kEdges,
                      kNegatives,
                      kChunk,
                      gpu_negatives.as<int32_t>(),
                      gpu_targets.as<int32_t>(),
                      {gpu_firsts.as<int32_t>(), 10, -1.25f},
                      scores.on_gpu(),
                      positives.on_gpu(),
                      losses.on_gpu()};
    losses_on_gpu(edges, kDevice, reinterpret_cast<intptr_t>(stream.get()));
    check_cuda(cudaStreamSynchronize(stream.get()), "losses");
    edges.negatives = negatives.data();
    edges.targets = targets.data();
    edges.own.firsts = firsts.data();
    edges.scores = scores.host.data();
    edges.positives = positives.host.data();
    edges.losses = losses.host.data();
    losses_by_twin(edges);
    LSM_EXPECT(scores.are_equal() && positives.are_equal() && losses.are_equal(), "loss ",
               static_cast<int>(loss));
  }
}

}  // namespace

}  // namespace lsm::testing
