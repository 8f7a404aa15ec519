// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports sampling, relabelling and static scores.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <vector>

#include "kernels/bind.h"
#include "kernels/bind_batch_name.h"
#include "kernels/bind_tensor.h"
#include "kernels/core/check.h"
#include "kernels/core/mapped_file.h"
#include "kernels/core/philox.h"
#include "kernels/core/remade_after_fork.h"
#include "kernels/core/thread_pool.h"
#include "kernels/gather/gather.h"
#include "kernels/pagerank/reverse_pagerank.h"
#include "kernels/sample/draw.h"
#include "kernels/sample/draw_simd.h"
#include "kernels/sample/labor_simd.h"
#include "kernels/sample/sampler.h"
#include "kernels/sample/unique.h"

namespace py = pybind11;

namespace {

int64_t unique_relabel(const lsm::TensorView& ids, const lsm::TensorView& unique,
                       const lsm::TensorView& inverse) {
  const auto id_span = ids.as<const int64_t>("ids");
  const auto unique_span = unique.as<int64_t>("unique");
  const auto inverse_span = inverse.as<int64_t>("inverse");
  lsm::check_argument(
      unique_span.size() == id_span.size() + 1 && inverse_span.size() == id_span.size(),
      "unique, inverse: expected ", id_span.size() + 1, " and ", id_span.size(), " elements");
  py::gil_scoped_release release;
  return lsm::unique_relabel(id_span, unique_span.data(), inverse_span.data());
}

bool same_ids(const lsm::TensorView& a, const lsm::TensorView& b) {
  const auto first = a.as<const int64_t>("a"), second = b.as<const int64_t>("b");
  py::gil_scoped_release release;
  return std::ranges::equal(first, second);
}

using Sampler = lsm::RemadeAfterFork<lsm::NeighborSampler>;

std::unique_ptr<Sampler> make_sampler(const lsm::TensorView& indptr, const lsm::TensorView& indices,
                                      std::vector<int64_t> fanouts, int num_threads,
                                      const lsm::Sampling& sampling) {
  return std::make_unique<Sampler>([=, fanouts = std::move(fanouts)] {
    return lsm::make_neighbor_sampler(indptr, indices, fanouts, num_threads, sampling);
  });
}

lsm::SampledSubgraph sample(Sampler& of_process, const lsm::TensorView& seeds,
                            const lsm::BatchName& name, bool edge_ids) {
  lsm::NeighborSampler& sampler = of_process.get();
  const auto seed_span = seeds.as<const int64_t>("seeds");
  lsm::check_argument(seeds.num_dims == 1, "seeds: expected [n], got ", seeds.num_dims, " dims");
  py::gil_scoped_release release;
  return sampler.sample(seed_span, name,
                        edge_ids ? lsm::EdgeIds::kRecord : lsm::EdgeIds::kLeaveOut);
}

void pack_sources(const lsm::TensorView& sources, const lsm::TensorView& packed) {
  const auto from = sources.as<const int64_t>("sources");
  const auto to = packed.as<int32_t>("packed");
  lsm::check_argument(from.size() == to.size(), "packed: expected ", from.size(), " elements");
  py::gil_scoped_release release;
  std::ranges::transform(from, to.begin(), [](int64_t id) { return static_cast<int32_t>(id); });
}

void unpack_edges(const lsm::TensorView& packed, const lsm::TensorView& indptr,
                  const lsm::TensorView& sources, const lsm::TensorView& destinations) {
  const auto from = packed.as<const int32_t>("packed");
  const auto bounds = indptr.as<const int64_t>("indptr");
  const auto source_span = sources.as<int64_t>("sources");
  const auto destination_span = destinations.as<int64_t>("destinations");
  const int64_t count = static_cast<int64_t>(from.size());
  lsm::check_argument(!bounds.empty() && bounds.front() == 0 && bounds.back() == count,
                      "indptr: expected it to go from 0 to ", count);
  lsm::check_argument(std::ranges::is_sorted(bounds), "indptr: expected it to rise");
  lsm::check_argument(source_span.size() == from.size() && destination_span.size() == from.size(),
                      "sources, destinations: expected [", count, "] each");
  py::gil_scoped_release release;
  std::ranges::copy(from, source_span.begin());
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    std::fill(destination_span.begin() + bounds[i], destination_span.begin() + bounds[i + 1],
              static_cast<int64_t>(i));
  }
}

struct StopFlag {
  std::atomic<bool> value{false};
};

bool reverse_pagerank(const lsm::TensorView& indptr, const lsm::TensorView& indices,
                      const lsm::TensorView& train_ids, int iterations, double damping,
                      const lsm::TensorView& scores, lsm::ThreadPool& pool,
                      std::optional<const StopFlag*> stop) {
  const auto train_span = train_ids.as<const int64_t>("train_ids");
  const auto score_span = scores.as<float>("scores");
  py::gil_scoped_release release;
  const bool done = lsm::reverse_pagerank(indptr, indices, train_span,
                                          {iterations, damping, stop ? &(*stop)->value : nullptr},
                                          score_span, pool);
  lsm::check_mapped(indptr.data);
  lsm::check_mapped(indices.data);
  return done;
}

void in_degree(const lsm::TensorView& indptr, const lsm::TensorView& scores,
               lsm::ThreadPool& pool) {
  const auto offsets = indptr.as<const int64_t>("indptr");
  const auto score_span = scores.as<float>("scores");
  py::gil_scoped_release release;
  lsm::in_degree(offsets, score_span, pool);
  lsm::check_mapped(indptr.data);
}

void bind_relabelling(py::module_& module) {
  module.def("unique_relabel", &unique_relabel, py::arg("ids"), py::arg("unique"),
             py::arg("inverse"));
  module.def("same_ids", &same_ids, py::arg("a"), py::arg("b"));
}

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, uint64_t key) {
  const auto [a, b, c, d] =
      lsm::philox4x32({{counter[0], counter[1], counter[2], counter[3]}}, key).word;
  return {a, b, c, d};
}

std::array<uint32_t, 2> philox2x32(std::array<uint32_t, 2> counter, uint32_t key) {
  const auto [a, b] = lsm::philox2x32({{counter[0], counter[1]}}, key).word;
  return {a, b};
}

std::vector<uint32_t> draw_positions(uint64_t key, uint64_t id, uint32_t hop, uint32_t degree,
                                     uint32_t count) {
  lsm::check_argument(count < degree, "count: expected less than degree");
  lsm::PhiloxStream random(key, id, hop);
  std::vector<uint32_t> positions(count + lsm::draw_scratch_words(count));
  lsm::draw_positions(random, degree, count, positions.data() + count, positions.data());
  positions.resize(count);
  return positions;
}

/// As draw_positions for one node per lane; None where a lane is uncertain.
std::vector<std::optional<std::vector<uint32_t>>> draw_simd(
    uint64_t key, const std::array<uint64_t, lsm::DrawSimd::kLanes>& ids, uint32_t hop,
    const std::array<uint32_t, lsm::DrawSimd::kLanes>& degrees, uint32_t count) {
  lsm::check_argument(count <= lsm::DrawSimd::kMaxCount, "count: expected at most 64");
  lsm::DrawSimd lanes;
  for (int l = 0; l < lanes.kLanes; ++l) {
    lsm::check_argument(count < degrees[l], "count: expected less than every degree");
    lanes.set(l, ids[l], degrees[l]);
  }
  lsm::draw_simd(lanes, count, key, hop);
  std::vector<std::optional<std::vector<uint32_t>>> drawn(lanes.kLanes);
  for (int l = 0; l < lanes.kLanes; ++l) {
    if (lanes.uncertain[l]) continue;
    drawn[l].emplace();
    for (uint32_t i = 0; i < count; ++i) drawn[l]->push_back(lanes.positions[i][l]);
  }
  return drawn;
}

/// LABOR's draws of `ids` at a hop of the batch `name`.
std::vector<uint32_t> labor_draws(const lsm::LaborSampling& sampling, const lsm::BatchName& name,
                                  uint32_t hop, const std::vector<int64_t>& ids) {
  lsm::check_sampling(sampling, {});
  std::vector<uint32_t> draws(ids.size());
  lsm::labor_draws(lsm::SourceDraws::of(sampling, name, hop), ids.data(),
                   static_cast<int64_t>(ids.size()), draws.data());
  return draws;
}

void bind_sample(py::module_& module) {
  py::class_<lsm::NeighborSampling>(module, "NeighborSampling").def(py::init<>());
  py::class_<lsm::LaborSampling>(module, "LaborSampling")
      .def(py::init([](bool layer_dependency, uint32_t batch_dependency) {
             return lsm::LaborSampling{layer_dependency, batch_dependency};
           }),
           py::arg("layer_dependency"), py::arg("batch_dependency"));
  py::class_<lsm::LadiesSampling>(module, "LadiesSampling")
      .def(py::init([](bool debias) { return lsm::LadiesSampling{debias}; }), py::arg("debias"));
  py::class_<lsm::SampledSubgraph>(module, "SampledSubgraph")
      .def_readonly("n_id", &lsm::SampledSubgraph::n_id)
      .def_readonly("edges", &lsm::SampledSubgraph::edges)
      .def_readonly("indptr", &lsm::SampledSubgraph::indptr)
      .def_readonly("weights", &lsm::SampledSubgraph::weights)
      .def_readonly("edge_ids", &lsm::SampledSubgraph::edge_ids)
      .def_readonly("num_nodes", &lsm::SampledSubgraph::num_nodes)
      .def_readonly("num_edges", &lsm::SampledSubgraph::num_edges)
      .def_readonly("num_expanded", &lsm::SampledSubgraph::num_expanded)
      .def_readonly("num_sampled_nodes", &lsm::SampledSubgraph::num_sampled_nodes)
      .def_readonly("num_sampled_edges", &lsm::SampledSubgraph::num_sampled_edges);
  // The sampler reads the tensors' memory, so it keeps the tensors.
  py::class_<Sampler>(module, "NeighborSampler")
      .def(py::init(&make_sampler), py::arg("indptr"), py::arg("indices"), py::arg("fanouts"),
           py::arg("num_threads"), py::arg("sampling"), py::keep_alive<1, 2>(),
           py::keep_alive<1, 3>())
      .def("sample", &sample, py::arg("seeds"), py::arg("name"), py::arg("edge_ids"));
  module.def("pack_sources", &pack_sources, py::arg("sources"), py::arg("packed"));
  module.def("unpack_edges", &unpack_edges, py::arg("packed"), py::arg("indptr"),
             py::arg("sources"), py::arg("destinations"));
  // The parts of a draw, for tests.
  module.def("philox2x32", &philox2x32, py::arg("counter"), py::arg("key"));
  module.def("philox4x32", &philox4x32, py::arg("counter"), py::arg("key"));
  module.def("draw_positions", &draw_positions, py::arg("key"), py::arg("id"), py::arg("hop"),
             py::arg("degree"), py::arg("count"));
  module.def("labor_draws", &labor_draws, py::arg("sampling"), py::arg("name"), py::arg("hop"),
             py::arg("ids"));
  module.def("draw_simd", &draw_simd, py::arg("key"), py::arg("ids"), py::arg("hop"),
             py::arg("degrees"), py::arg("count"));
}

void bind_scores(py::module_& module) {
  py::class_<StopFlag>(module, "StopFlag").def(py::init<>()).def("set", [](StopFlag& flag) {
    flag.value = true;
  });
  module.def("reverse_pagerank", &reverse_pagerank, py::arg("indptr"), py::arg("indices"),
             py::arg("train_ids"), py::arg("iterations"), py::arg("damping"), py::arg("scores"),
             py::arg("pool"), py::arg("stop") = py::none());
  module.def("in_degree", &in_degree, py::arg("indptr"), py::arg("scores"), py::arg("pool"));
}

}  // namespace

namespace lsm {

void bind_sampling(py::module_& module) {
  ::bind_relabelling(module);
  ::bind_sample(module);
  ::bind_scores(module);
}

}  // namespace lsm
