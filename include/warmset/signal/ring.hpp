// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <type_traits>

#include "../core/error.hpp"
#include "../core/ids.hpp"
#include "../core/result.hpp"
#include "words.hpp"

namespace warmset::inline v0::signal {

/// The ring of demands: nothing is ever dropped. A producer that finds it full waits for what the consumer
/// owes, so it is made large enough for the messages of one captured graph.
struct demand_ring {
  static constexpr u32 magic = 0x5744'4D31;  // "WDM1"
  static constexpr bool drops = false;
  static constexpr char const* name = "demand";
};

/// The ring of hints: two deep, and the newest is dropped where it is full.
struct hint_ring {
  static constexpr u32 magic = 0x5748'4E31;  // "WHN1"
  static constexpr bool drops = true;
  static constexpr u32 depth = 2;
  static constexpr char const* name = "hint";
};

/// Sizes of a ring. The capacity is a power of two, so that cells stay in order when numbers wrap.
struct ring_shape {
  u32 capacity;  ///< messages
  u32 max_ids;   ///< ids of one message

  static constexpr u32 head_words = 4 * words_per_line;
  /// A cell: number, check, layer, tag, after, count of ids, ids.
  static constexpr u32 cell_head = 6;

  WARMSET_HD constexpr u32 stride() const noexcept { return whole_lines(cell_head + max_ids); }
  WARMSET_HD constexpr u32 words() const noexcept { return head_words + capacity * stride(); }
  bool operator==(ring_shape const&) const = default;
};

/// What a message says besides its ids.
struct message {
  u32 layer = 0;
  u32 tag = 0;    ///< demand: the phase; hint: `ahead`
  u32 after = 0;  ///< hint: number of the last demand that was published before it
  u32 n = 0;      ///< ids
};

/// A ring in plain words: no pointer inside, one writer per word, and a line of its own for each side.
/// Trivially copyable, so that a kernel takes it by value.
///
///     line 0   magic, capacity, max_ids, first number          written once, by format
///     line 1   published, dropped messages, dropped ids        the producer
///     line 2   consumed                                        the consumer
///     line 3   whether each end is taken                       the host, when ends are made
///     cells    number, check, layer, tag, after, n, ids        the producer
template <class Kind>
struct ring_view {
  u32* base = nullptr;
  ring_shape shape{};

  enum word : u32 {
    magic = 0,
    capacity = 1,
    max_ids = 2,
    first = 3,
    published = words_per_line,
    dropped = words_per_line + 1,
    dropped_ids = words_per_line + 2,
    consumed = 2 * words_per_line,
    producer_taken = 3 * words_per_line,
    consumer_taken = 3 * words_per_line + 1,
  };
  enum cell_word : u32 { number, check, layer, tag, after, n_ids, ids };

  WARMSET_HD constexpr u32* at(word w) const noexcept { return base + w; }
  WARMSET_HD constexpr u32* cell(u32 sequence) const noexcept {
    return base + ring_shape::head_words + (sequence & (shape.capacity - 1)) * shape.stride();
  }
};

static_assert(std::is_trivially_copyable_v<ring_view<demand_ring>>, "a view goes to a kernel");

namespace detail {

/// One word's share of a message's check. The check is a sum, so that lanes can make it together.
WARMSET_HD constexpr u32 check_word(u32 position, u32 word) noexcept {
  u32 x = word + (position + 1) * 0x9E37'79B9u;
  x = (x ^ (x >> 16)) * 0x85EB'CA6Bu;
  x = (x ^ (x >> 13)) * 0xC2B2'AE35u;
  return x ^ (x >> 16);
}

}  // namespace detail

/// Throws config_error where no ring has this shape.
template <class Kind>
void require_possible(ring_shape s) {
  if (s.capacity < 2 || s.capacity > 32'768 || (s.capacity & (s.capacity - 1)) != 0) {
    throw config_error("a ", Kind::name, " ring of ", s.capacity,
                       " messages; a power of two between 2 and 32768 is possible");
  }
  if (s.max_ids == 0 || s.max_ids > 65'535) {
    throw config_error("messages of ", s.max_ids, " ids; between 1 and 65535 are possible");
  }
}

/// Writes an empty ring whose first message will have the number `first`. The cells carry the numbers of
/// the lap before, so that no number is special. Throws config_error where the shape is not possible.
template <class Kind, memory_words Words = host_words>
void format_ring(ring_view<Kind> r, u32 first = 1) {
  using view = ring_view<Kind>;
  u32 const capacity = r.shape.capacity;
  require_possible<Kind>(r.shape);
  for (u32 i = 0; i < r.shape.words(); ++i) {
    Words::store(r.base + i, 0);
  }
  for (u32 i = 0; i < capacity; ++i) {
    u32 const next = first + i;
    Words::store(r.cell(next) + view::number, next - capacity);
  }
  Words::store(r.at(view::capacity), capacity);
  Words::store(r.at(view::max_ids), r.shape.max_ids);
  Words::store(r.at(view::first), first);
  Words::store(r.at(view::published), first - 1);
  Words::store(r.at(view::consumed), first - 1);
  Words::store_release(r.at(view::magic), Kind::magic);
}

/// Where a producer stands. Plain data: a device keeps it in its own memory and counts there, so that each
/// replay of a graph publishes new numbers.
struct producer_state {
  u32 next;      ///< number of the next message
  u32 consumed;  ///< what the consumer had taken when this side last looked
};

enum class push : u8 {
  published,
  full,      ///< the consumer owes `capacity` messages; nothing was written
  replayed,  ///< a message of this number has been published before; nothing was written
};

namespace detail {

/// Writes what a message has besides its ids, which are there, and publishes it.
WARMSET_SIDE_OF_WORDS
template <memory_words Words, class Kind>
WARMSET_HD void publish_head(ring_view<Kind> r, u32 sequence, message const& m, u32 n, routed_id const* ids) noexcept {
  using view = ring_view<Kind>;
  u32* const cell = r.cell(sequence);
  u32 const head[] = {sequence, m.layer, m.tag, m.after, n};
  u32 sum = 0;
  for (u32 i = 0; i < 5; ++i) {
    sum += check_word(i, head[i]);
  }
  for (u32 i = 0; i < n; ++i) {
    sum += check_word(5 + i, static_cast<u32>(ids[i]));
  }
  Words::store(cell + view::layer, m.layer);
  Words::store(cell + view::tag, m.tag);
  Words::store(cell + view::after, m.after);
  Words::store(cell + view::n_ids, n);
  Words::store(cell + view::check, sum);
  Words::store_release(cell + view::number, sequence);
  Words::store_release(r.at(view::published), sequence);
}

}  // namespace detail

/// Publishes a message under a number of the caller's choice: once, however often it is asked. Writes the
/// cell first and its number last. Looks at the consumer's word only where its cell may still be owed.
/// O(ids); never waits.
WARMSET_SIDE_OF_WORDS
template <memory_words Words, class Kind>
WARMSET_HD push push_as(ring_view<Kind> r, producer_state& state, u32 sequence, message const& m,
                        routed_id const* ids) noexcept {
  using view = ring_view<Kind>;
  if (!reached(sequence, state.next)) {
    return push::replayed;
  }
  if (!reached(state.consumed + r.shape.capacity, sequence)) {
    state.consumed = Words::load_acquire(r.at(view::consumed));
    if (!reached(state.consumed + r.shape.capacity, sequence)) {
      return push::full;
    }
  }
  u32 const n = min_of(m.n, r.shape.max_ids);
  for (u32 i = 0; i < n; ++i) {
    Words::store(r.cell(sequence) + view::ids + i, static_cast<u32>(ids[i]));
  }
  detail::publish_head<Words>(r, sequence, m, n, ids);
  state.next = sequence + 1;
  return push::published;
}

enum class pull : u8 {
  empty,
  taken,
  torn,  ///< the cell has the number and not what was published under it: a second producer, or no order
  lost,  ///< the cell has a later number: a producer that does not wait
};

/// Copies the message of this number out. It stays the consumer's to acknowledge. O(ids); never waits.
WARMSET_SIDE_OF_WORDS
template <memory_words Words, class Kind>
WARMSET_HD pull pull_as(ring_view<Kind> r, u32 sequence, message& m, routed_id* ids) noexcept {
  using view = ring_view<Kind>;
  u32 const* const cell = r.cell(sequence);
  u32 const found = Words::load_acquire(cell + view::number);
  if (found != sequence) {
    return reached(found, sequence) ? pull::lost : pull::empty;
  }
  m = {Words::load(cell + view::layer), Words::load(cell + view::tag),
       Words::load(cell + view::after), Words::load(cell + view::n_ids)};
  if (m.n > r.shape.max_ids) {
    return pull::torn;
  }
  u32 const head[] = {sequence, m.layer, m.tag, m.after, m.n};
  u32 sum = 0;
  for (u32 i = 0; i < 5; ++i) {
    sum += detail::check_word(i, head[i]);
  }
  for (u32 i = 0; i < m.n; ++i) {
    u32 const id = Words::load(cell + view::ids + i);
    sum += detail::check_word(5 + i, id);
    ids[i] = static_cast<routed_id>(id);
  }
  return sum == Words::load(cell + view::check) ? pull::taken : pull::torn;
}

namespace detail {

/// The right to be one end of a ring: moved, never copied, and given back by the destructor. Host only.
class claim {
 public:
  claim() = default;
  /// False afterwards where somebody has it.
  explicit claim(u32* word) noexcept {
    if (std::atomic_ref<u32>(*word).exchange(1, std::memory_order_acq_rel) == 0) {
      word_ = word;
    }
  }
  claim(claim&& other) noexcept : word_(other.word_) { other.word_ = nullptr; }
  claim& operator=(claim&& other) noexcept {
    if (this != &other) {
      give_back();
      word_ = other.word_;
      other.word_ = nullptr;
    }
    return *this;
  }
  ~claim() { give_back(); }
  explicit operator bool() const noexcept { return word_ != nullptr; }

 private:
  void give_back() noexcept {
    if (word_ != nullptr) {
      std::atomic_ref<u32>(*word_).store(0, std::memory_order_release);
      word_ = nullptr;
    }
  }
  u32* word_ = nullptr;
};

template <class Kind>
void require_format(ring_view<Kind> r) {
  using view = ring_view<Kind>;
  if (host_words::load_acquire(r.at(view::magic)) != Kind::magic) {
    throw config_error("the memory holds no ", Kind::name, " ring: format it first");
  }
  u32 const capacity = host_words::load(r.at(view::capacity));
  u32 const max_ids = host_words::load(r.at(view::max_ids));
  if (ring_shape{capacity, max_ids} != r.shape) {
    throw config_error("the ", Kind::name, " ring has ", capacity, " messages of ", max_ids,
                       " ids and is opened as one of ", r.shape.capacity, " of ", r.shape.max_ids);
  }
}

}  // namespace detail

/// The one producer of a ring on the host. Throws config_error where the ring has one already.
template <class Kind, memory_words Words = host_words>
class producer {
  using view = ring_view<Kind>;

 public:
  explicit producer(ring_view<Kind> r) : ring_(r) {
    detail::require_format(r);
    claim_ = detail::claim(r.at(view::producer_taken));
    if (!claim_) {
      throw config_error("the ", Kind::name, " ring has a producer: a ring has one");
    }
    u32 const published = Words::load_acquire(r.at(view::published));
    state_ = {published + 1, Words::load_acquire(r.at(view::consumed))};
  }
  producer(producer const&) = delete;
  producer& operator=(producer const&) = delete;
  producer(producer&&) noexcept = default;
  producer& operator=(producer&&) noexcept = default;

  /// Number of the message that the next push publishes.
  u32 next() const noexcept { return state_.next; }

  /// Publishes the next message. `full`: a ring that drops has dropped and counted it; another has
  /// written nothing, ask again.
  push operator()(message const& m, routed_id const* ids) noexcept {
    push const result = again(state_.next, m, ids);
    if constexpr (Kind::drops) {
      if (result == push::full) {
        count(view::dropped, 1);
        count(view::dropped_ids, m.n);
      }
    }
    return result;
  }
  /// The same under a given number: a message that is published again is published once.
  push again(u32 sequence, message const& m, routed_id const* ids) noexcept {
    return push_as<Words>(ring_, state_, sequence, m, ids);
  }

 private:
  void count(typename view::word w, u32 n) noexcept {
    Words::store(ring_.at(w), Words::load(ring_.at(w)) + n);
  }

  ring_view<Kind> ring_;
  detail::claim claim_;
  producer_state state_{};
};

/// The one consumer of a ring. Cannot be copied; a second one of the same ring is a config_error.
template <class Kind, memory_words Words = host_words>
class consumer {
  using view = ring_view<Kind>;

 public:
  explicit consumer(ring_view<Kind> r) : ring_(r) {
    detail::require_format(r);
    claim_ = detail::claim(r.at(view::consumer_taken));
    if (!claim_) {
      throw config_error("the ", Kind::name, " ring has a consumer: a ring has one");
    }
    next_ = Words::load_acquire(r.at(view::consumed)) + 1;
  }
  consumer(consumer const&) = delete;
  consumer& operator=(consumer const&) = delete;
  consumer(consumer&&) noexcept = default;
  consumer& operator=(consumer&&) noexcept = default;

  /// Number of the message that the next take looks for.
  u32 next() const noexcept { return next_; }

  /// Copies the next message out, each once; `ids` has room for max_ids.
  pull take(message& m, routed_id* ids) noexcept {
    pull const result = pull_as<Words>(ring_, next_, m, ids);
    next_ += result == pull::taken ? 1 : 0;
    return result;
  }
  /// Whether a message waits. O(1).
  bool has_message() const noexcept {
    return reached(Words::load_acquire(ring_.cell(next_) + view::number), next_);
  }
  /// Gives the cells up to this number back to the producer.
  void acknowledge(u32 sequence) noexcept {
    Words::store_release(ring_.at(view::consumed), sequence);
  }

 private:
  ring_view<Kind> ring_;
  detail::claim claim_;
  u32 next_ = 0;
};

}  // namespace warmset::inline v0::signal
