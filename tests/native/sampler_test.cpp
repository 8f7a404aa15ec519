// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The sampler on random graphs: what it returns are samples, the same whoever asks and with however
// many threads.
#include <doctest/doctest.h>
#include <cstring>
#include <set>
#include <thread>

#include "kernels/sample/sampler.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

template <class Id>
struct Graph {
  std::vector<int64_t> indptr = {0};
  std::vector<Id> indices;

  explicit Graph(Random& random, int64_t num_nodes) {
    for (int64_t node = 0; node < num_nodes; ++node) {
      const int64_t degree = random.chance(5) ? random.between(200, 900) : random.between(0, 12);
      for (int64_t i = 0; i < degree; ++i) {
        indices.push_back(static_cast<Id>(random.between(0, num_nodes - 1)));
      }
      indptr.push_back(static_cast<int64_t>(indices.size()));
    }
  }
};

std::vector<int64_t> words_of(const std::shared_ptr<HostBuffer>& buffer, int64_t count) {
  std::vector<int64_t> words(static_cast<size_t>(count));
  if (count > 0) std::memcpy(words.data(), buffer->data(), words.size() * sizeof(int64_t));
  return words;
}

struct Sample {
  std::vector<int64_t> nodes, edges, indptr;
  friend bool operator==(const Sample&, const Sample&) = default;

  explicit Sample(const SampledSubgraph& sampled)
      : nodes(words_of(sampled.n_id, sampled.num_nodes)),
        edges(words_of(sampled.edges, 2 * sampled.num_edges)),
        indptr(words_of(sampled.indptr, sampled.num_expanded + 1)) {}
};

/// Nodes are distinct; each expanded node has as many edges as its fanout takes, all in the graph.
template <class Id>
void check_sample(const Graph<Id>& graph, const Sample& sample, const SampledSubgraph& sampled,
                  const std::vector<int64_t>& fanouts) {
  const std::set<int64_t> distinct(sample.nodes.begin(), sample.nodes.end());
  LSM_EXPECT(distinct.size() == sample.nodes.size(), "nodes repeat");
  int64_t begin = 0, end = sampled.num_sampled_nodes[0];
  for (size_t hop = 0; hop < fanouts.size(); ++hop) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t node = sample.nodes[static_cast<size_t>(i)];
      const int64_t degree = graph.indptr[node + 1] - graph.indptr[node];
      const int64_t from = sample.indptr[i], to = sample.indptr[i + 1];
      const int64_t expected = fanouts[hop] < 0 ? degree : std::min(degree, fanouts[hop]);
      LSM_EXPECT(to - from == expected, "node ", node, ": ", to - from, " edges");
      std::multiset<int64_t> neighbors(graph.indices.begin() + graph.indptr[node],
                                       graph.indices.begin() + graph.indptr[node + 1]);
      for (int64_t edge = from; edge < to; ++edge) {
        const int64_t source = sample.nodes[static_cast<size_t>(sample.edges[edge])];
        const auto found = neighbors.find(source);
        LSM_EXPECT(found != neighbors.end(), source, " is no neighbour of ", node);
        neighbors.erase(found);
        LSM_EXPECT(sample.edges[sampled.num_edges + edge] == i, "edge ", edge);
      }
    }
    begin = end;
    end += sampled.num_sampled_nodes[hop + 1];
  }
  LSM_EXPECT(end == sampled.num_nodes, end);
}

template <class Id>
void sample_graphs() {
  Random random(sizeof(Id));
  for (const int64_t num_nodes : {1, 50, 20'000}) {
    const Graph<Id> graph(random, num_nodes);
    const std::vector<int64_t> fanouts = {5, -1, 3};
    const auto make = [&](int num_threads) {
      return make_neighbor_sampler(view_of(graph.indptr), view_of(graph.indices), fanouts,
                                   num_threads);
    };
    const auto one = make(1), many = make(4);
    std::vector<std::thread> callers;
    std::vector<std::string> errors(3);
    for (uint64_t caller = 0; caller < errors.size(); ++caller) {
      callers.emplace_back([&, caller] {
        try {
          Random own(caller);
          for (uint64_t iteration = 0; iteration < 4; ++iteration) {
            const auto seeds = skewed_ids(own, num_nodes, 100);
            const BatchName name{1, 2, iteration, caller};
            const SampledSubgraph sampled = many->sample(seeds, name, EdgeIds::kLeaveOut);
            const Sample sample(sampled);
            check_sample(graph, sample, sampled, fanouts);
            LSM_EXPECT(sample == Sample(one->sample(seeds, name, EdgeIds::kRecord)), "iteration ",
                       iteration);
          }
        } catch (const std::exception& error) {
          errors[caller] = error.what();
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    for (const std::string& error : errors) LSM_EXPECT(error.empty(), error);
  }
}

TEST_CASE("sampler: 32-bit graphs") {
  sample_graphs<int32_t>();
}

TEST_CASE("sampler: 64-bit graphs") {
  sample_graphs<int64_t>();
}

}  // namespace

}  // namespace lsm::testing
