// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/embed/add_rows.h"

#include "kernels/core/check.h"
#include "kernels/core/vector_clones.h"

namespace lsm {
namespace {

LSM_VECTOR_CLONES
void add(float* sum, const float* row, int64_t dim) {
  for (int64_t i = 0; i < dim; ++i) sum[i] += row[i];
}

}  // namespace

void add_rows(float* table, int64_t num_rows, int64_t dim, std::span<const int64_t> ids,
              const float* rows) {
  for (const int64_t id : ids) {
    check_argument(id >= 0 && id < num_rows, "ids: expected ids in [0, ", num_rows, "), got ", id);
  }
  for (const int64_t id : ids) {
    add(table + id * dim, rows, dim);
    rows += dim;
  }
}

}  // namespace lsm
