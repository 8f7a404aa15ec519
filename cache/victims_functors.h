// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The functors of a victim buffer whose book-keeping is on a GPU. Its choices are those of
// VictimBuffer::put(): a pool's by the digits of an order, a queue's by sorting.
#pragma once

#include <cstdint>

#include "cache/next_use_chain_functors.h"
#include "cache/plan.h"
#include "cache/policy/line.h"
#include "cache/set_cache.h"
#include "kernels/core/atomics.h"
#include "kernels/core/hash.h"

namespace lsm::cache {

/// Rows by their slots, and slots by the rows' ids. Not owned. A place of the table that a row has
/// left takes others, but a search goes on past it.
struct VictimsRef {
  static constexpr uint32_t kNever = 0;  // places without a row
  static constexpr uint32_t kLeft = 1;
  static constexpr uint32_t kFirst = 2;  // slot 0

  // Orders: the next use, or behind all next uses one of the rank. The lowest is the best.
  static constexpr uint64_t kUnknown = uint64_t{1} << 32;
  static constexpr uint64_t kNoRow = ~uint64_t{0};

  int64_t* id;      // [num_slots] kEmptyTag: free
  uint64_t* order;  // [num_slots] kNoRow: free
  uint32_t* table;  // [num_places] kFirst + slot
  uint32_t num_slots;
  uint32_t num_places;

  LSM_HOST_DEVICE static uint64_t order_of_rank(uint32_t rank) { return kUnknown | ~rank; }

  LSM_HOST_DEVICE bool is_on() const { return num_slots > 0; }

  /// The slot of the row, or -1.
  LSM_HOST_DEVICE int64_t find(int64_t wanted) const {
    for (uint32_t place = home(wanted);; place = next(place)) {
      const uint32_t held = atomic_load(&table[place]);
      if (held == kNever) return -1;
      if (held != kLeft && id[held - kFirst] == wanted) return held - kFirst;
    }
  }

  /// Of distinct rows, in any order and at the same time.
  LSM_HOST_DEVICE void enter(int64_t entering, uint32_t slot) const {
    for (uint32_t place = home(entering);; place = next(place)) {
      const uint32_t held = atomic_load(&table[place]);
      if (held >= kFirst) continue;
      if (atomic_compare_exchange(&table[place], held, kFirst + slot) == held) return;
    }
  }

  /// Frees the slot of a row that is there. At the same time only other rows may leave.
  LSM_HOST_DEVICE void leave(int64_t leaving, uint32_t slot) const {
    uint32_t place = home(leaving);
    while (atomic_load(&table[place]) != kFirst + slot) place = next(place);
    atomic_store(&table[place], kLeft);
    id[slot] = kEmptyTag;
    order[slot] = kNoRow;
  }

 private:
  LSM_HOST_DEVICE uint32_t home(int64_t of) const {
    const uint64_t hash = mix64(static_cast<uint64_t>(of));
    return static_cast<uint32_t>(((hash >> 32) * num_places) >> 32);
  }
  LSM_HOST_DEVICE uint32_t next(uint32_t place) const {
    return place + 1 == num_places ? 0 : place + 1;
  }
};

/// Enters the row of a slot, if there is one, into an empty table.
struct EnterSlot {
  VictimsRef victims;

  LSM_HOST_DEVICE void operator()(int64_t slot) const {
    if (victims.id[slot] != kEmptyTag) {
      victims.enter(victims.id[slot], static_cast<uint32_t>(slot));
    }
  }
};

/// Gives the row of an id that enters the window its next use, if it had none.
struct TagVictim {
  VictimsRef victims;
  ChainRef chain;
  uint32_t first;  // number of the batch's first occurrence
  uint32_t batch;

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t slot = victims.find(chain.at(first + static_cast<uint32_t>(i)).id);
    if (slot < 0 || victims.order[slot] < VictimsRef::kUnknown) return;
    victims.order[slot] = batch;
  }
};

/// Frees the slots of the rows that a batch requests.
struct ServeVictim {
  VictimsRef victims;
  const int64_t* ids;
  const RowSource* source;
  const int64_t* slot;

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    if (source[i] == RowSource::kVictim) victims.leave(ids[i], static_cast<uint32_t>(slot[i]));
  }
};

/// The rows that leave the device in one plan, in the order of its moves. Not owned.
struct OffersRef {
  const Leaving* leaving;  // [count] of moves; others have no row
  uint64_t* order;         // [count] kNoRow: none that the buffer may take
  int64_t count;
};

/// Writes the order of a row that leaves. A next use counts once it is pushed: with a trace, lines
/// know more.
struct OfferRow {
  OffersRef offers;
  RanksRef ranks;
  const uint32_t* keys;  // of the moves, sorted
  uint32_t num_sets;
  uint32_t num_pushed;
  bool takes_unknown;

  LSM_HOST_DEVICE void operator()(int64_t i) const { offers.order[i] = order_of(i); }

 private:
  LSM_HOST_DEVICE uint64_t order_of(int64_t i) const {
    if (keys[i] == num_sets) return VictimsRef::kNoRow;
    const Leaving& row = offers.leaving[i];
    if (row.id == kEmptyTag) return VictimsRef::kNoRow;
    if (row.next_use != kNoNextUse && row.next_use < num_pushed) return row.next_use;
    return takes_unknown ? VictimsRef::order_of_rank(ranks.of(row)) : VictimsRef::kNoRow;
  }
};

/// Gives every row of unknown next use its rank anew.
struct RankAgain {
  VictimsRef victims;
  ScoresRef scores;

  LSM_HOST_DEVICE void operator()(int64_t slot) const {
    const uint64_t order = victims.order[slot];
    if (order < VictimsRef::kUnknown || order == VictimsRef::kNoRow) return;
    victims.order[slot] = VictimsRef::order_of_rank(scores.of(victims.id[slot]));
  }
};

/// Searches the best rows of a pool and of the offers, digit by digit of their orders: how many
/// rows have each digit is counted among those that have all digits before it.
struct PoolRows {
  static constexpr int kDigitBits = 4;
  static constexpr int kDigits = 16;
  static constexpr int kPasses = 9;

  VictimsRef victims;
  OffersRef offers;
  uint64_t* counts;  // [kPasses * kDigits] 0 before

  LSM_HOST_DEVICE int64_t num_items() const { return victims.num_slots + offers.count; }
  LSM_HOST_DEVICE uint64_t order(int64_t i) const {
    return i < victims.num_slots ? victims.order[i] : offers.order[i - victims.num_slots];
  }
  LSM_HOST_DEVICE static int shift_of(int pass) { return (kPasses - 1 - pass) * kDigitBits; }
};

/// The order of the best row that is not kept, as far as its digits are known.
struct Cut {
  uint64_t digits = 0;
  int64_t num_kept = 0;    // of the rows with these digits
  bool is_needed = false;  // false: all rows are kept

  /// After `num_passes` passes.
  template <class Warp>
  LSM_HOST_DEVICE static Cut find(const Warp& warp, const PoolRows& rows, int num_passes) {
    Cut cut = {0, rows.victims.num_slots, true};
    for (int pass = 0; pass < num_passes && cut.is_needed; ++pass) {
      const uint64_t* const counts = rows.counts + pass * PoolRows::kDigits;
      cut.is_needed = false;
      for (int first = 0; first < PoolRows::kDigits && !cut.is_needed; first += Warp::kLanes) {
        cut.add_digit(warp, counts, first);
      }
    }
    return cut;
  }

 private:
  /// Appends the digit of the row after `num_kept`, if it is from `first` on, one a lane.
  template <class Warp>
  LSM_HOST_DEVICE void add_digit(const Warp& warp, const uint64_t* counts, int first) {
    typename Warp::template Var<int64_t> count;
    typename Warp::template Var<int64_t> before;
    typename Warp::template Var<uint64_t> bits;
    typename Warp::template Var<bool> is_cut;
    warp.each([&](int lane) {
      const bool is_digit = first + lane < PoolRows::kDigits;
      count[lane] = is_digit ? static_cast<int64_t>(counts[first + lane]) : 0;
      before[lane] = count[lane];
    });
    const int64_t sum = warp.sum_before(before);
    warp.each([&](int lane) {
      is_cut[lane] = before[lane] + count[lane] > num_kept;
      bits[lane] = static_cast<uint64_t>(before[lane]);
    });
    const int found = warp.first(is_cut);
    is_needed = found >= 0;
    if (!is_needed) {
      num_kept -= sum;
      return;
    }
    const auto shared = warp.shuffle(bits, [&](int) { return found; });
    num_kept -= static_cast<int64_t>(shared[0]);
    digits = digits << PoolRows::kDigitBits | static_cast<uint64_t>(first + found);
  }
};

/// A warp per kTile rows: counts their digits of one pass.
struct CountDigits {
  static constexpr int64_t kTile = 4096;
  static constexpr int kWords = 4;  // of a lane's counts, with 16 bits for a digit
  static constexpr int kDigitsOfWord = PoolRows::kDigits / kWords;
  static_assert(kTile < 1 << 16);

  PoolRows rows;
  int pass;

  template <class Warp>
  LSM_HOST_DEVICE void operator()(const Warp& warp, int64_t tile) const {
    const Cut cut = Cut::find(warp, rows, pass);
    if (!cut.is_needed) return;
    typename Warp::template Var<uint64_t> counts[kWords];
    warp.each([&](int lane) {
      for (int64_t i = tile * kTile + lane; i < end_of(tile); i += Warp::kLanes) {
        const int digit = digit_of(rows.order(i), cut.digits);
        if (digit < 0) continue;
        const uint64_t one = uint64_t{1} << 16 * (digit % kDigitsOfWord);
        for (int word = 0; word < kWords; ++word) {
          counts[word][lane] += digit / kDigitsOfWord == word ? one : 0;
        }
      }
    });
    for (int digit = 0; digit < PoolRows::kDigits; ++digit) {
      typename Warp::template Var<int64_t> count;
      warp.each([&](int lane) {
        const uint64_t word = counts[digit / kDigitsOfWord][lane];
        count[lane] = static_cast<int64_t>(word >> 16 * (digit % kDigitsOfWord) & 0xFFFF);
      });
      const int64_t sum = warp.sum_before(count);
      warp.each([&](int lane) {
        if (lane != 0 || sum == 0) return;
        atomic_add(rows.counts + pass * PoolRows::kDigits + digit, static_cast<uint64_t>(sum));
      });
    }
  }

 private:
  LSM_HOST_DEVICE int64_t end_of(int64_t tile) const {
    const int64_t end = (tile + 1) * kTile;
    return end < rows.num_items() ? end : rows.num_items();
  }
  /// The digit of this pass, or -1 if there is no row or it has other digits before.
  LSM_HOST_DEVICE int digit_of(uint64_t order, uint64_t before) const {
    const uint64_t digits = order >> PoolRows::shift_of(pass);
    if (order == VictimsRef::kNoRow || digits >> PoolRows::kDigitBits != before) return -1;
    return static_cast<int>(digits & (PoolRows::kDigits - 1));
  }
};

/// One warp: writes the cut, and counts the rows with a next use that are lost.
struct WriteCut {
  PoolRows rows;
  Cut* cut;
  int64_t* num_lost;

  template <class Warp>
  LSM_HOST_DEVICE void operator()(const Warp& warp, int64_t) const {
    const Cut found = Cut::find(warp, rows, PoolRows::kPasses);
    warp.each([&](int lane) {
      if (lane != 0) return;
      *cut = found;
      // The first digit of a next use is 0.
      const int64_t excess = static_cast<int64_t>(rows.counts[0]) - rows.victims.num_slots;
      *num_lost = excess > 0 ? excess : 0;
    });
  }
};

/// Items of an OrderedSum: the pool's rows by slot, then the offers. Removes and refuses those that
/// are not kept.
struct KeepBest {
  static constexpr int kTile = 128;

  PoolRows rows;
  const Cut* cut;

  LSM_HOST_DEVICE int64_t count() const { return cut->is_needed ? rows.num_items() : 0; }
  LSM_HOST_DEVICE int64_t value(int64_t i) const { return rows.order(i) == cut->digits; }
  LSM_HOST_DEVICE void place(int64_t i, int64_t is_equal, int64_t before) const {
    const uint64_t order = rows.order(i);
    if (order == VictimsRef::kNoRow || order < cut->digits) return;
    if (is_equal != 0 && before < cut->num_kept) return;
    if (i < rows.victims.num_slots) {
      rows.victims.leave(rows.victims.id[i], static_cast<uint32_t>(i));
    } else {
      rows.offers.order[i - rows.victims.num_slots] = VictimsRef::kNoRow;
    }
  }
  LSM_HOST_DEVICE void end(int64_t) const {}
};

/// The offers sorted by queue, within a queue in their order. Not owned.
struct QueuesRef {
  OffersRef offers;
  const uint32_t* keys;       // [count] the queue; num_queues: none
  const uint32_t* positions;  // [count]
  uint32_t* starts;           // [num_queues]
  uint32_t* sizes;            // [num_queues] rows
  uint32_t num_queues;
  uint32_t most;  // rows of a queue

  LSM_HOST_DEVICE bool is_last(int64_t j) const {
    return j + 1 == offers.count || keys[j + 1] != keys[j];
  }
};

/// The key that an offer is sorted by.
struct WriteQueue {
  OffersRef offers;
  uint32_t* keys;
  uint32_t* positions;
  uint32_t num_queues;

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    const uint64_t next_use = offers.order[i];
    keys[i] =
        next_use == VictimsRef::kNoRow ? num_queues : static_cast<uint32_t>(next_use % num_queues);
    positions[i] = static_cast<uint32_t>(i);
  }
};

struct WriteStart {
  QueuesRef queues;

  LSM_HOST_DEVICE void operator()(int64_t j) const {
    const uint32_t queue = queues.keys[j];
    if (queue == queues.num_queues || (j > 0 && queues.keys[j - 1] == queue)) return;
    queues.starts[queue] = static_cast<uint32_t>(j);
  }
};

/// Refuses the offers that find their queue full.
struct RefuseBeyond {
  QueuesRef queues;

  LSM_HOST_DEVICE void operator()(int64_t j) const {
    const uint32_t queue = queues.keys[j];
    if (queue == queues.num_queues) return;
    const uint32_t before = static_cast<uint32_t>(j) - queues.starts[queue];
    if (queues.sizes[queue] + before < queues.most) return;
    queues.offers.order[queues.positions[j]] = VictimsRef::kNoRow;
  }
};

/// Adds the offers that were not refused to the size of their queue.
struct GrowQueue {
  QueuesRef queues;
  int64_t* num_lost;

  LSM_HOST_DEVICE void operator()(int64_t j) const {
    const uint32_t queue = queues.keys[j];
    if (queue == queues.num_queues || !queues.is_last(j)) return;
    const uint32_t offered = static_cast<uint32_t>(j) + 1 - queues.starts[queue];
    const uint32_t room = queues.most - queues.sizes[queue];
    queues.sizes[queue] += offered < room ? offered : room;
    if (offered > room) atomic_add(num_lost, static_cast<int64_t>(offered - room));
  }
};

/// Items of an OrderedSum: slots, of which it lists the lowest free ones.
struct ListFree {
  static constexpr int kTile = 128;

  VictimsRef victims;
  uint32_t* free;  // [most]
  int64_t most;

  LSM_HOST_DEVICE int64_t count() const { return victims.num_slots; }
  LSM_HOST_DEVICE int64_t value(int64_t i) const { return victims.id[i] == kEmptyTag; }
  LSM_HOST_DEVICE void place(int64_t i, int64_t is_free, int64_t before) const {
    if (is_free != 0 && before < most) free[before] = static_cast<uint32_t>(i);
  }
  LSM_HOST_DEVICE void end(int64_t) const {}
};

/// Items of an OrderedSum: offers, of which those that are left enter the buffer.
struct EnterOffers {
  static constexpr int kTile = 128;

  VictimsRef victims;
  OffersRef offers;
  const uint32_t* free;
  int64_t* slot;  // [count] out, -1: none
  int64_t* num_entered;

  LSM_HOST_DEVICE int64_t count() const { return offers.count; }
  LSM_HOST_DEVICE int64_t value(int64_t i) const { return offers.order[i] != VictimsRef::kNoRow; }
  LSM_HOST_DEVICE void place(int64_t i, int64_t enters, int64_t before) const {
    slot[i] = -1;
    if (enters == 0) return;
    const uint32_t taken = free[before];
    slot[i] = taken;
    victims.id[taken] = offers.leaving[i].id;
    victims.order[taken] = offers.order[i];
    victims.enter(offers.leaving[i].id, taken);
  }
  LSM_HOST_DEVICE void end(int64_t total) const { *num_entered = total; }
};

}  // namespace lsm::cache
