// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports the functions of embeddings from disk.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/bind.h"
#include "kernels/bind_tensor.h"
#include "kernels/core/thread_pool.h"
#include "kernels/embed/adagrad.h"
#include "kernels/embed/add_rows.h"
#include "kernels/embed/complex_product.h"
#include "kernels/embed/distance.h"
#include "kernels/embed/gather_embeddings.h"
#include "kernels/embed/order_search.h"
#include "kernels/embed/softmax_loss.h"
#include "kernels/embed/trilinear.h"

namespace py = pybind11;

namespace {

std::optional<std::vector<std::pair<int, int>>> find_order(int partitions, int buffer, int ranks,
                                                           int64_t waste, uint64_t seed,
                                                           int64_t restarts, int64_t nodes) {
  std::optional<std::vector<lsm::PartitionLoad>> turns;
  {
    py::gil_scoped_release release;
    turns = lsm::search_order({partitions, buffer, ranks}, waste, {seed, restarts, nodes});
  }
  if (!turns) return std::nullopt;
  std::vector<std::pair<int, int>> pairs;
  for (const auto& [slot, partition] : *turns) pairs.emplace_back(slot, partition);
  return pairs;
}

/// The data of a matrix of `rows` rows of `columns` floats.
float* matrix(const lsm::TensorView& tensor, int64_t rows, int64_t columns, const char* name) {
  const auto floats = tensor.as<float>(name);
  lsm::check_argument(tensor.num_dims == 2 && tensor.shape[0] == rows && tensor.shape[1] == columns,
                      name, ": expected [", rows, ", ", columns, "]");
  return floats.data();
}

/// The data of a vector of `count` floats.
float* vector(const lsm::TensorView& tensor, int64_t count, const char* name) {
  const auto floats = tensor.as<float>(name);
  lsm::check_argument(tensor.num_dims == 1 && tensor.shape[0] == count, name, ": expected [", count,
                      "]");
  return floats.data();
}

double softmax_loss(const lsm::TensorView& positives, const lsm::TensorView& negatives,
                    lsm::ThreadPool& pool) {
  const int64_t num_edges = positives.shape[0];
  const std::span<float> of_edges(vector(positives, num_edges, "positives"), num_edges);
  float* scores = matrix(negatives, num_edges, negatives.shape[1], "negatives");
  py::gil_scoped_release release;
  return lsm::softmax_loss(of_edges, scores, negatives.shape[1], pool);
}

void update_rows(const lsm::TensorView& rows, const lsm::TensorView& ids,
                 const lsm::TensorView& gradients, float lr, float eps, lsm::ThreadPool& pool) {
  const auto id_span = ids.as<const int64_t>("ids");
  const int64_t dim = gradients.shape[1];
  const int64_t width = rows.shape[1];
  lsm::check_argument(width == 2 * dim || width == dim + 1, "rows: expected ", 2 * dim, " or ",
                      dim + 1, " floats a row, got ", width);
  const lsm::AdagradTable table{
      matrix(rows, rows.shape[0], width, "rows"), rows.shape[0], dim, width, lr, eps};
  const float* of_ids = matrix(gradients, ids.shape[0], dim, "gradients");
  py::gil_scoped_release release;
  lsm::update_rows(table, id_span, of_ids, pool);
}

void gather_embeddings(const lsm::TensorView& table, const lsm::TensorView& ids,
                       const lsm::TensorView& out, lsm::ThreadPool& pool) {
  const auto id_span = ids.as<const int64_t>("ids");
  lsm::check_argument(table.dtype == lsm::dtype_of<float>() && table.on_host &&
                          table.num_dims == 2 && (table.shape[1] == 1 || table.strides[1] == 1),
                      "table: expected rows of float32 in host memory, each contiguous");
  const lsm::FloatRows rows{reinterpret_cast<const float*>(table.data), table.shape[0],
                            table.shape[1], table.strides[0]};
  float* gathered = matrix(out, ids.shape[0], rows.dim, "out");
  py::gil_scoped_release release;
  lsm::gather_embeddings(rows, id_span, gathered, pool);
}

void add_rows(const lsm::TensorView& table, const lsm::TensorView& ids,
              const lsm::TensorView& rows) {
  const auto id_span = ids.as<const int64_t>("ids");
  const int64_t dim = table.shape[1];
  float* sums = matrix(table, table.shape[0], dim, "table");
  const float* added = matrix(rows, ids.shape[0], dim, "rows");
  py::gil_scoped_release release;
  lsm::add_rows(sums, table.shape[0], dim, id_span, added);
}

/// Of rows [n, dim] `entities`, `relations`, which may be null, and `targets`.
lsm::EdgeRows edge_rows(lsm::Operator query, bool inverse, const lsm::TensorView& entities,
                        const std::optional<lsm::TensorView>& relations,
                        const lsm::TensorView& targets) {
  const int64_t num_edges = entities.shape[0];
  const int64_t dim = entities.shape[1];
  lsm::check_argument(lsm::has_host_kernels({query, lsm::Comparator::kDot}),
                      "operator: expected one of models that score by inner products");
  lsm::check_argument(query == lsm::Operator::kIdentity || relations, "relations: expected rows");
  return {query,
          inverse,
          num_edges,
          dim,
          matrix(entities, num_edges, dim, "entities"),
          relations ? matrix(*relations, num_edges, dim, "relations") : nullptr,
          matrix(targets, num_edges, dim, "targets")};
}

void make_queries(lsm::Operator query, bool inverse, const lsm::TensorView& entities,
                  const std::optional<lsm::TensorView>& relations, const lsm::TensorView& targets,
                  const lsm::TensorView& queries, const lsm::TensorView& scores,
                  lsm::ThreadPool& pool) {
  const auto edges = edge_rows(query, inverse, entities, relations, targets);
  float* made = matrix(queries, edges.num_edges, edges.dim, "queries");
  float* of_edges = vector(scores, edges.num_edges, "scores");
  py::gil_scoped_release release;
  lsm::make_queries(edges, made, of_edges, pool);
}

void query_gradients(lsm::Operator query, bool inverse, const lsm::TensorView& entities,
                     const std::optional<lsm::TensorView>& relations,
                     const lsm::TensorView& targets, const lsm::TensorView& queries,
                     const lsm::TensorView& of_scores, const lsm::TensorView& of_queries,
                     const lsm::TensorView& of_entities, const lsm::TensorView& of_targets,
                     bool add, lsm::ThreadPool& pool) {
  const auto edges = edge_rows(query, inverse, entities, relations, targets);
  const float* made = matrix(queries, edges.num_edges, edges.dim, "queries");
  const lsm::QueryGradients gradients{
      vector(of_scores, edges.num_edges, "of_scores"),
      matrix(of_queries, edges.num_edges, edges.dim, "of_queries"),
      matrix(of_entities, edges.num_edges, edges.dim, "of_entities"),
      matrix(of_targets, edges.num_edges, edges.dim, "of_targets"), add};
  py::gil_scoped_release release;
  lsm::query_gradients(edges, made, gradients, pool);
}

void complex_product(const lsm::TensorView& a, const lsm::TensorView& b, const lsm::TensorView& out,
                     bool conjugate, lsm::ThreadPool& pool) {
  const lsm::ComplexRows shape{a.shape[0], a.shape[1], conjugate};
  const float* first = matrix(a, shape.rows, shape.dim, "a");
  const float* second = matrix(b, shape.rows, shape.dim, "b");
  float* product = matrix(out, shape.rows, shape.dim, "out");
  py::gil_scoped_release release;
  lsm::complex_product(shape, first, second, product, pool);
}

void complex_product_backward(const lsm::TensorView& gradient, const lsm::TensorView& a,
                              const lsm::TensorView& b, const lsm::TensorView& of_a,
                              const lsm::TensorView& of_b, bool conjugate, lsm::ThreadPool& pool) {
  const lsm::ComplexRows shape{a.shape[0], a.shape[1], conjugate};
  const float* of_product = matrix(gradient, shape.rows, shape.dim, "gradient");
  const float* first = matrix(a, shape.rows, shape.dim, "a");
  const float* second = matrix(b, shape.rows, shape.dim, "b");
  float* of_first = matrix(of_a, shape.rows, shape.dim, "of_a");
  float* of_second = matrix(of_b, shape.rows, shape.dim, "of_b");
  py::gil_scoped_release release;
  lsm::complex_product_backward(shape, of_product, first, second, of_first, of_second, pool);
}

lsm::QueriesAndEntities queries_and_entities(const lsm::TensorView& queries,
                                             const lsm::TensorView& entities) {
  const int64_t dim = queries.shape[1];
  return {matrix(queries, queries.shape[0], dim, "queries"),
          matrix(entities, entities.shape[0], dim, "entities"), queries.shape[0], entities.shape[0],
          dim};
}

void check_distance(lsm::Comparator comparator) {
  lsm::check_argument(
      comparator == lsm::Comparator::kManhattan || comparator == lsm::Comparator::kModulus,
      "comparator: expected one that no matrix product computes");
}

void distance_scores(lsm::Comparator comparator, const lsm::TensorView& queries,
                     const lsm::TensorView& entities, const lsm::TensorView& out,
                     lsm::ThreadPool& pool) {
  check_distance(comparator);
  const auto rows = queries_and_entities(queries, entities);
  float* scores = matrix(out, rows.num_queries, rows.num_entities, "out");
  py::gil_scoped_release release;
  lsm::distance_scores(comparator, rows, scores, pool);
}

void distance_scores_backward(lsm::Comparator comparator, const lsm::TensorView& gradient,
                              const lsm::TensorView& queries, const lsm::TensorView& entities,
                              const lsm::TensorView& of_queries, const lsm::TensorView& of_entities,
                              lsm::ThreadPool& pool) {
  check_distance(comparator);
  const auto rows = queries_and_entities(queries, entities);
  const float* of_scores = matrix(gradient, rows.num_queries, rows.num_entities, "gradient");
  float* of_query = matrix(of_queries, rows.num_queries, rows.dim, "of_queries");
  float* of_entity = matrix(of_entities, rows.num_entities, rows.dim, "of_entities");
  py::gil_scoped_release release;
  lsm::distance_scores_backward(comparator, rows, of_scores, of_query, of_entity, pool);
}

}  // namespace

namespace lsm {

void bind_embed(py::module_& module) {
  module.def(
      "search_order", &find_order, py::kw_only(), py::arg("partitions"), py::arg("buffer"),
      py::arg("ranks"), py::arg("waste"), py::arg("seed"), py::arg("restarts"), py::arg("nodes"),
      "Turns (slot, partition loaded) of an order whose loads waste at most `waste`, or None.");
  module.def("softmax_loss", &::softmax_loss, py::arg("positives"), py::arg("negatives"),
             py::arg("pool"));
  module.def("update_rows", &::update_rows, py::arg("rows"), py::arg("ids"), py::arg("gradients"),
             py::arg("lr"), py::arg("eps"), py::arg("pool"));
  module.def("gather_embeddings", &::gather_embeddings, py::arg("table"), py::arg("ids"),
             py::arg("out"), py::arg("pool"));
  module.def("add_rows", &::add_rows, py::arg("table"), py::arg("ids"), py::arg("rows"));
  py::enum_<Operator> operators(module, "Operator");
  for (const auto& [name, value] : kOperators) operators.value(name, value);
  py::enum_<Comparator> comparators(module, "Comparator");
  for (const auto& [name, value] : kComparators) comparators.value(name, value);
  module.def(
      "has_host_kernels",
      [](Operator query, Comparator score) { return has_host_kernels({query, score}); },
      py::arg("operator"), py::arg("comparator"),
      "True if make_queries and query_gradients take the model.");
  module.def("make_queries", &::make_queries, py::arg("operator"), py::arg("inverse"),
             py::arg("entities"), py::arg("relations"), py::arg("targets"), py::arg("queries"),
             py::arg("scores"), py::arg("pool"));
  module.def("query_gradients", &::query_gradients, py::arg("operator"), py::arg("inverse"),
             py::arg("entities"), py::arg("relations"), py::arg("targets"), py::arg("queries"),
             py::arg("of_scores"), py::arg("of_queries"), py::arg("of_entities"),
             py::arg("of_targets"), py::arg("add"), py::arg("pool"));
  module.def("complex_product", &::complex_product, py::arg("a"), py::arg("b"), py::arg("out"),
             py::arg("conjugate"), py::arg("pool"));
  module.def("complex_product_backward", &::complex_product_backward, py::arg("gradient"),
             py::arg("a"), py::arg("b"), py::arg("of_a"), py::arg("of_b"), py::arg("conjugate"),
             py::arg("pool"));
  module.def("distance_scores", &::distance_scores, py::arg("comparator"), py::arg("queries"),
             py::arg("entities"), py::arg("out"), py::arg("pool"));
  module.def("distance_scores_backward", &::distance_scores_backward, py::arg("comparator"),
             py::arg("gradient"), py::arg("queries"), py::arg("entities"), py::arg("of_queries"),
             py::arg("of_entities"), py::arg("pool"));
}

}  // namespace lsm
