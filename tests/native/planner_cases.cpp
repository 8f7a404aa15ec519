// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "tests/native/planner_cases.h"

#include <algorithm>
#include <set>

#include "cache/metadata_word.h"

namespace lsm::testing {

PlannerCase PlannerCase::draw(uint64_t seed, const std::string& policy, const std::string& mode,
                              int64_t num_nodes) {
  Random random(seed);
  PlannerCase drawn;
  auto& config = drawn.config;
  config.policy = policy;
  config.victim_mode = mode;
  config.ways = random.pick<int64_t>({1, 3, 8, 20, 32});
  config.num_lines = config.ways * random.between(1, 6);
  config.window = random.between(1, 12);
  config.update_period = random.between(1, 4);
  config.near_fraction = 0.125 * static_cast<double>(random.between(0, 8));
  config.victim_rows = mode == "none" ? 0 : random.between(1, 20);
  config.seed = random.next();
  config.num_nodes = num_nodes;
  const int64_t num_batches = random.between(1, 40);
  for (int64_t b = 0; b < num_batches; ++b) {
    drawn.batches.push_back(skewed_ids(random, num_nodes, random.between(0, 70)));
    const auto size = static_cast<int64_t>(drawn.batches.back().size());
    auto& starts = drawn.rank_starts.emplace_back();
    for (int64_t rank = 0, ranks = seed % 3 * 4; rank < ranks; ++rank) {
      starts.push_back(rank == 0 ? 0 : random.between(0, size));
    }
    std::sort(starts.begin(), starts.end());
  }
  if (random.chance(50)) {
    for (int64_t id = 0; id < num_nodes / 2; ++id) {
      drawn.scores.push_back(static_cast<float>(random.between(0, 5)));
    }
  }
  if (random.chance(50)) drawn.static_ids = skewed_ids(random, num_nodes, 9);
  if (random.chance(50)) drawn.constant_ids = skewed_ids(random, num_nodes, 9);
  return drawn;
}

std::unique_ptr<cache::Planner> PlannerCase::make_planner(int num_threads) const {
  const std::vector<std::span<const int64_t>> trace(batches.begin(), batches.end());
  cache::PlannerInput input{scores, static_ids, constant_ids, {}};
  if (config.policy == "belady") input.trace = trace;
  return std::make_unique<cache::Planner>(config, input, std::make_shared<ThreadPool>(num_threads));
}

int64_t PlannerCase::victim_slots() const {
  return config.victim_mode == "queues" ? config.victim_rows * config.window : config.victim_rows;
}

void PlannerCase::push_until(cache::Planner& planner, int64_t t) const {
  while (planner.num_pushed() < std::min(t + config.window, num_batches())) {
    const auto b = static_cast<size_t>(planner.num_pushed());
    planner.push(batches[b], rank_starts[b]);
  }
}

std::string PlannerCase::name() const {
  return concat(config.policy, ", ", config.victim_mode, ", ", config.num_lines, " lines of ",
                config.ways, " ways, window ", config.window);
}

void TierModel::check(const cache::Plan& plan) {
  check_requests(plan);
  for (size_t i = 0; i < plan.tag_slot.size(); ++i) {
    check_word(plan, victims_.at(plan.tag_slot[i]), static_cast<uint64_t>(plan.tag_word[i]));
  }
  std::vector<int64_t> evicted, spilled;
  std::set<int64_t> written;
  for (const int64_t line : plan.evict_line) {
    LSM_EXPECT(lines_.contains(line), planned_.name(), ": evicts empty line ", line);
    evicted.push_back(lines_[line]);
  }
  for (const int64_t position : plan.spill_position) {
    spilled.push_back(plan.ids[static_cast<size_t>(position)]);
  }
  for (size_t i = 0; i < plan.insert_line.size(); ++i) {
    LSM_EXPECT(written.insert(plan.insert_line[i]).second, planned_.name(), ": inserts twice");
    lines_[plan.insert_line[i]] = plan.ids[static_cast<size_t>(plan.insert_position[i])];
  }
  for (const int64_t line : plan.evict_line) LSM_EXPECT(written.contains(line), planned_.name());
  written.clear();
  for (const auto* slots : {&plan.evict_slot, &plan.spill_slot}) {
    for (const int64_t slot : *slots) {
      LSM_EXPECT(slot < 0 || written.insert(slot).second, planned_.name(), ": slot twice");
    }
  }
  enter_victims(plan, plan.evict_slot, plan.evict_word, evicted);
  enter_victims(plan, plan.spill_slot, plan.spill_word, spilled);
}

void TierModel::check_requests(const cache::Plan& plan) {
  LSM_EXPECT(plan.ids == planned_.batches[static_cast<size_t>(plan.iteration)], planned_.name());
  int64_t found[5] = {};
  for (size_t i = 0; i < plan.ids.size(); ++i) {
    const int64_t id = plan.ids[i], slot = plan.slot[i];
    ++found[static_cast<int>(plan.source[i])];
    int64_t held = id;
    switch (plan.source[i]) {
      case RowSource::kStatic:
        held = planned_.static_ids.at(static_cast<size_t>(slot));
        break;
      case RowSource::kConstant:
        held = planned_.constant_ids.at(static_cast<size_t>(slot));
        break;
      case RowSource::kCache:
        held = lines_.at(slot);
        break;
      case RowSource::kVictim:
        held = victims_.at(slot);
        victims_.erase(slot);
        break;
      case RowSource::kStorage:
        break;
    }
    LSM_EXPECT(held == id, planned_.name(), ", iteration ", plan.iteration, ", position ", i);
  }
  const cache::Counters& counters = plan.counters;
  const int64_t counted[5] = {counters.static_hits, counters.hits, counters.victim_hits,
                              counters.constant_hits, counters.misses};
  LSM_EXPECT(std::equal(found, found + 5, counted), planned_.name());
  LSM_EXPECT(counters.requests == static_cast<int64_t>(plan.ids.size()), counters.requests);
}

void TierModel::enter_victims(const cache::Plan& plan, const std::vector<int64_t>& slots,
                              const std::vector<int64_t>& words, const std::vector<int64_t>& ids) {
  LSM_EXPECT(slots.size() == words.size() && slots.size() == ids.size(), planned_.name());
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0) continue;
    LSM_EXPECT(slots[i] < planned_.victim_slots(), planned_.name(), ": slot ", slots[i]);
    victims_[slots[i]] = ids[i];
    check_word(plan, ids[i], static_cast<uint64_t>(words[i]));
  }
}

void TierModel::check_word(const cache::Plan& plan, int64_t id, uint64_t word) const {
  if (plan.on_gpu != nullptr) {
    LSM_EXPECT(word == cache::kUnknownUse, planned_.name(), ": ", id, " has a word");
    return;
  }
  const auto iteration = static_cast<uint64_t>(plan.iteration);
  const bool is_known = word != cache::kUnknownUse;
  const auto row = is_known ? cache::unpack_metadata(word, iteration) : cache::RowMetadata{};
  const auto end_window = std::min<uint64_t>(
      iteration + static_cast<uint64_t>(planned_.config.window), planned_.batches.size());
  for (uint64_t b = iteration + 1; b < (is_known ? row.next_use : end_window); ++b) {
    const auto& between = planned_.batches.at(b);
    LSM_EXPECT(std::find(between.begin(), between.end(), id) == between.end(), planned_.name(),
               ": ", id, " is asked for at ", b);
  }
  if (!is_known) return;
  LSM_EXPECT(planned_.batches.at(row.next_use).at(row.position) == id, planned_.name());
  const auto& starts = planned_.rank_starts[row.next_use];
  uint64_t rank = 0;
  while (rank + 1 < starts.size() && starts[rank + 1] <= static_cast<int64_t>(row.position)) {
    ++rank;
  }
  LSM_EXPECT(row.rank == rank, planned_.name(), ": rank ", row.rank);
}

}  // namespace lsm::testing
