// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports the kernels of embeddings on a GPU, or their twins where the device is negative.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <initializer_list>
#include <optional>
#include <string>

#include "kernels/bind.h"
#include "kernels/bind_tensor.h"
#include "kernels/core/check.h"
#include "kernels/embed/gpu_distances.h"
#include "kernels/embed/gpu_edges.h"
#include "kernels/embed/gpu_losses.h"
#include "kernels/embed/gpu_updates.h"

namespace py = pybind11;

namespace {

/// The data of a contiguous tensor of T with this shape on `device`; -1 in a shape: any size.
template <class T>
T* data_on(const lsm::TensorView& tensor, int device, const char* name,
           std::initializer_list<int64_t> shape) {
  lsm::check_argument(tensor.dtype == lsm::dtype_of<T>(), name, ": expected dtype ",
                      to_string(lsm::dtype_of<T>()), ", got ", to_string(tensor.dtype));
  bool fits = tensor.num_dims == static_cast<int>(shape.size());
  std::string expected;
  int d = 0;
  for (const int64_t size : shape) {
    fits = fits && (size < 0 || tensor.shape[d] == size);
    expected += (d++ > 0 ? ", " : "") + (size < 0 ? "any" : std::to_string(size));
  }
  lsm::check_argument(fits, name, ": expected [", expected, "]");
  return reinterpret_cast<T*>(tensor.as_bytes_on(device, name).data());
}

/// Rows of `dim` floats, a view of the first columns of a table.
const float* table_on(const lsm::TensorView& table, int device, int64_t dim, const char* name) {
  lsm::check_argument(table.dtype == lsm::dtype_of<float>() && table.num_dims == 2 &&
                          table.shape[1] == dim && table.strides[1] == 1,
                      name, ": expected rows of ", dim, " float32");
  lsm::check_argument(table.on_host ? device < 0 : table.device == device, name,
                      ": expected a tensor on ",
                      device < 0 ? "the host" : lsm::concat("cuda:", device));
  return static_cast<const float*>(table.data);
}

template <class T>
T* optional_on(const std::optional<lsm::TensorView>& tensor, int device, const char* name,
               std::initializer_list<int64_t> shape) {
  return tensor ? data_on<T>(*tensor, device, name, shape) : nullptr;
}

lsm::SortedGradients sorted_gradients(const lsm::TensorView& sorted_rows,
                                      const lsm::TensorView& places,
                                      const lsm::TensorView& gradients,
                                      const lsm::TensorView& partial, int device) {
  const int64_t count = sorted_rows.shape[0];
  const int64_t dim = gradients.shape[1];
  return {data_on<int32_t>(sorted_rows, device, "sorted_rows", {count}),
          data_on<int64_t>(places, device, "places", {count}),
          data_on<float>(gradients, device, "gradients", {-1, dim}),
          count,
          dim,
          data_on<float>(partial, device, "partial",
                         {2 * lsm::SortedGradients::num_windows(count), dim})};
}

void update_rows_on(const lsm::TensorView& rows, const lsm::TensorView& sorted_rows,
                    const lsm::TensorView& places, const lsm::TensorView& gradients,
                    const lsm::TensorView& partial, float lr, float eps, int device,
                    intptr_t stream) {
  const auto sorted = sorted_gradients(sorted_rows, places, gradients, partial, device);
  const int64_t width = rows.shape[1];
  lsm::check_argument(width == 2 * sorted.dim || width == sorted.dim + 1, "rows: expected ",
                      2 * sorted.dim, " or ", sorted.dim + 1, " floats a row, got ", width);
  const lsm::AdagradTable table{
      data_on<float>(rows, device, "rows", {-1, width}), rows.shape[0], sorted.dim, width, lr, eps};
  py::gil_scoped_release release;
  if (device < 0) return lsm::update_rows_by_twin(sorted, table);
  lsm::update_rows_on_gpu(sorted, table, device, stream);
}

void sum_rows(const lsm::TensorView& sorted_rows, const lsm::TensorView& places,
              const lsm::TensorView& gradients, const lsm::TensorView& partial,
              const lsm::TensorView& out, int device, intptr_t stream) {
  const auto sorted = sorted_gradients(sorted_rows, places, gradients, partial, device);
  float* sums = data_on<float>(out, device, "out", {-1, sorted.dim});
  py::gil_scoped_release release;
  if (device < 0) return lsm::sum_rows_by_twin(sorted, sums);
  lsm::sum_rows_on_gpu(sorted, sums, device, stream);
}

lsm::EdgeBatch make_batch(lsm::Operator query, lsm::Comparator score, bool inverse,
                          const lsm::TensorView& entities,
                          const std::optional<lsm::TensorView>& relations,
                          const lsm::TensorView& ends,
                          const std::optional<lsm::TensorView>& relation_rows,
                          const std::optional<lsm::TensorView>& dropout, int device) {
  const int64_t count = ends.shape[1];
  const int64_t dim = entities.shape[1];
  lsm::check_argument((relations && relation_rows) || query == lsm::Operator::kIdentity,
                      "relations: expected a table and rows of it for this model");
  return {{query, score},
          inverse,
          count,
          dim,
          table_on(entities, device, dim, "entities"),
          entities.strides[0],
          relations ? table_on(*relations, device, dim, "relations") : nullptr,
          relations ? relations->strides[0] : 0,
          data_on<int64_t>(ends, device, "ends", {2, count}),
          optional_on<int64_t>(relation_rows, device, "relation_rows", {2, count}),
          optional_on<float>(dropout, device, "dropout", {2, count, dim})};
}

void form_queries(lsm::Operator query, lsm::Comparator score, bool inverse,
                  const lsm::TensorView& entities, const std::optional<lsm::TensorView>& relations,
                  const lsm::TensorView& ends, const std::optional<lsm::TensorView>& relation_rows,
                  const std::optional<lsm::TensorView>& dropout, const lsm::TensorView& queries,
                  const lsm::TensorView& positives, int device, intptr_t stream) {
  const auto edges =
      make_batch(query, score, inverse, entities, relations, ends, relation_rows, dropout, device);
  const lsm::EdgeQueries out{
      data_on<float>(queries, device, "queries", {2, edges.count, edges.dim}),
      data_on<float>(positives, device, "positives", {2, edges.count})};
  py::gil_scoped_release release;
  if (device < 0) return lsm::form_queries_by_twin(edges, out);
  lsm::form_queries_on_gpu(edges, out, device, stream);
}

void edge_gradients(lsm::Operator query, lsm::Comparator score, bool inverse,
                    const lsm::TensorView& entities,
                    const std::optional<lsm::TensorView>& relations, const lsm::TensorView& ends,
                    const std::optional<lsm::TensorView>& relation_rows,
                    const std::optional<lsm::TensorView>& dropout,
                    const lsm::TensorView& of_queries, const lsm::TensorView& of_positives,
                    const lsm::TensorView& of_ends,
                    const std::optional<lsm::TensorView>& of_relations,
                    const lsm::TensorView& losses, lsm::Penalty penalty, float weight, int device,
                    intptr_t stream) {
  const auto edges =
      make_batch(query, score, inverse, entities, relations, ends, relation_rows, dropout, device);
  const int64_t count = edges.count;
  const int64_t dim = edges.dim;
  lsm::check_argument(of_relations || query == lsm::Operator::kIdentity,
                      "of_relations: expected a tensor for this model");
  const lsm::EdgeGradients gradients{
      data_on<float>(of_queries, device, "of_queries", {2, count, dim}),
      data_on<float>(of_positives, device, "of_positives", {2, count}),
      data_on<float>(of_ends, device, "of_ends", {2 * count, dim}),
      optional_on<float>(of_relations, device, "of_relations", {2 * count, dim}),
      data_on<float>(losses, device, "losses", {2, count}),
      penalty,
      weight};
  py::gil_scoped_release release;
  if (device < 0) return lsm::edge_gradients_by_twin(edges, gradients);
  lsm::edge_gradients_on_gpu(edges, gradients, device, stream);
}

void losses_on(lsm::EdgeLoss loss, float margin, float shift, int64_t chunk,
               const lsm::TensorView& negatives, const lsm::TensorView& targets,
               const std::optional<lsm::TensorView>& firsts, int32_t partition_rows,
               float partition_shift, const lsm::TensorView& scores,
               const lsm::TensorView& positives, const lsm::TensorView& losses, int device,
               intptr_t stream) {
  const int64_t count = scores.shape[0];
  const int64_t num_negatives = scores.shape[1];
  lsm::check_argument(chunk > 0 && negatives.shape[0] * chunk >= count,
                      "negatives: expected a row for every ", chunk, " edges");
  lsm::check_argument(!firsts || partition_rows > 0, "partition_rows: expected at least 1, got ",
                      partition_rows);
  const lsm::ScoredEdges edges{
      loss,
      margin,
      shift,
      count,
      num_negatives,
      chunk,
      data_on<int32_t>(negatives, device, "negatives", {-1, num_negatives}),
      data_on<int32_t>(targets, device, "targets", {count}),
      {optional_on<int32_t>(firsts, device, "firsts", {count}), partition_rows, partition_shift},
      data_on<float>(scores, device, "scores", {count, num_negatives}),
      data_on<float>(positives, device, "positives", {count}),
      data_on<float>(losses, device, "losses", {count})};
  py::gil_scoped_release release;
  if (device < 0) return lsm::losses_by_twin(edges);
  lsm::losses_on_gpu(edges, device, stream);
}

/// Queries [chunks, q, dim] and `num_entities` entities, whose rows are not set.
lsm::DistanceChunks distance_chunks(lsm::Comparator comparator, const lsm::TensorView& queries,
                                    int64_t num_entities, int device) {
  const int64_t chunks = queries.shape[0];
  const int64_t dim = queries.shape[2];
  const float* const rows = data_on<float>(queries, device, "queries", {chunks, -1, dim});
  return {comparator, chunks, queries.shape[1], num_entities, dim, rows, nullptr, nullptr};
}

void distances(lsm::Comparator comparator, const lsm::TensorView& queries,
               const lsm::TensorView& transposed, const lsm::TensorView& out, int device,
               intptr_t stream) {
  auto rows = distance_chunks(comparator, queries, transposed.shape[2], device);
  rows.transposed = data_on<float>(transposed, device, "transposed", {rows.chunks, rows.dim, -1});
  float* scores =
      data_on<float>(out, device, "out", {rows.chunks, rows.num_queries, rows.num_entities});
  py::gil_scoped_release release;
  if (device < 0) return lsm::distances_by_twin(rows, scores);
  lsm::distances_on_gpu(rows, scores, device, stream);
}

void distance_gradients(lsm::Comparator comparator, const lsm::TensorView& queries,
                        const lsm::TensorView& entities, const lsm::TensorView& of_scores,
                        const lsm::TensorView& of_queries, const lsm::TensorView& of_entities,
                        bool add, int device, intptr_t stream) {
  auto rows = distance_chunks(comparator, queries, entities.shape[1], device);
  rows.entities = data_on<float>(entities, device, "entities", {rows.chunks, -1, rows.dim});
  const lsm::DistanceGradients gradients{
      data_on<float>(of_scores, device, "of_scores",
                     {rows.chunks, rows.num_queries, rows.num_entities}),
      data_on<float>(of_queries, device, "of_queries", {rows.chunks, rows.num_queries, rows.dim}),
      data_on<float>(of_entities, device, "of_entities",
                     {rows.chunks, rows.num_entities, rows.dim}),
      add};
  py::gil_scoped_release release;
  if (device < 0) return lsm::distance_gradients_by_twin(rows, gradients);
  lsm::distance_gradients_on_gpu(rows, gradients, device, stream);
}

}  // namespace

namespace lsm {

void bind_gpu_embed(py::module_& module) {
  module.def(
      "has_gpu_kernels",
      [](Operator query, Comparator score) { return has_gpu_kernels({query, score}); },
      py::arg("operator"), py::arg("comparator"),
      "True if form_queries_on and edge_gradients_on take the model.");
  py::enum_<EdgeLoss>(module, "EdgeLoss")
      .value("softmax", EdgeLoss::kSoftmax)
      .value("logistic", EdgeLoss::kLogistic)
      .value("margin", EdgeLoss::kMargin);
  py::enum_<Penalty>(module, "Penalty")
      .value("none", Penalty::kNone)
      .value("floats", Penalty::kFloats)
      .value("moduli", Penalty::kModuli);
  module.attr("SUM_WINDOW") = SortedGradients::kWindow;
  module.def("update_rows_on", &update_rows_on, py::arg("rows"), py::arg("sorted_rows"),
             py::arg("places"), py::arg("gradients"), py::arg("partial"), py::arg("lr"),
             py::arg("eps"), py::arg("device"), py::arg("stream"));
  module.def("sum_rows_on", &::sum_rows, py::arg("sorted_rows"), py::arg("places"),
             py::arg("gradients"), py::arg("partial"), py::arg("out"), py::arg("device"),
             py::arg("stream"));
  module.def("form_queries_on", &::form_queries, py::arg("operator"), py::arg("comparator"),
             py::arg("inverse"), py::arg("entities"), py::arg("relations"), py::arg("ends"),
             py::arg("relation_rows"), py::arg("dropout"), py::arg("queries"), py::arg("positives"),
             py::arg("device"), py::arg("stream"));
  module.def("edge_gradients_on", &::edge_gradients, py::arg("operator"), py::arg("comparator"),
             py::arg("inverse"), py::arg("entities"), py::arg("relations"), py::arg("ends"),
             py::arg("relation_rows"), py::arg("dropout"), py::arg("of_queries"),
             py::arg("of_positives"), py::arg("of_ends"), py::arg("of_relations"),
             py::arg("losses"), py::arg("penalty"), py::arg("weight"), py::arg("device"),
             py::arg("stream"));
  module.def("distances_on", &::distances, py::arg("comparator"), py::arg("queries"),
             py::arg("transposed"), py::arg("out"), py::arg("device"), py::arg("stream"));
  module.def("distance_gradients_on", &::distance_gradients, py::arg("comparator"),
             py::arg("queries"), py::arg("entities"), py::arg("of_scores"), py::arg("of_queries"),
             py::arg("of_entities"), py::arg("add"), py::arg("device"), py::arg("stream"));
  module.def("losses_on", &::losses_on, py::arg("loss"), py::arg("margin"), py::arg("shift"),
             py::arg("chunk"), py::arg("negatives"), py::arg("targets"), py::arg("firsts"),
             py::arg("partition_rows"), py::arg("partition_shift"), py::arg("scores"),
             py::arg("positives"), py::arg("losses"), py::arg("device"), py::arg("stream"));
}

}  // namespace lsm
