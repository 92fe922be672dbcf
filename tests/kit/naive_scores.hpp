// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <warmset/policy/score/successor.hpp>
#include <warmset/policy/score/supplied.hpp>
#include <warmset/policy/score/supplied_with.hpp>

#include "state.hpp"
#include "successor_reference.hpp"

namespace warmset::kit {

/// What the model knows of the experts of one row when a step begins, or when it ends.
struct row_of_experts {
  std::vector<score_cell> cells;
  std::vector<expert_facts> facts;
  clocks now;
};

/// A contextual score's rule for one row, by lists and loops: the expectation that real ones are compared with.
class naive_context {
 public:
  virtual ~naive_context() = default;
  /// The key of every expert at a step. Writes nothing.
  virtual std::vector<i32> keys(id_list const& demanded, step_said const&, row_of_experts const&) const = 0;
  /// Takes a committed step in; the cells are what the touches left.
  virtual void learn(id_list const& demanded, step_said const&, std::vector<i32> const& keys,
                     std::vector<score_cell>& cells) = 0;
};

/// make(numbers, experts, layer) the score's rule; key_of(cell); ages = a layer passed in this token counts less.
template <class Score>
struct naive_context_of;

namespace detail {
template <class State>
State state_in(score_cell const& c) {
  State x{};
  std::memcpy(&x, c.data(), sizeof x);
  return x;
}
template <class State>
void write_state(score_cell& c, State const& x) {
  std::memcpy(c.data(), &x, sizeof x);
}
inline i32 saturated_sum(i64 a, i64 b) {
  return static_cast<i32>(std::clamp(a + b, -i64{0x7FFF'FFFF}, i64{0x7FFF'FFFF}));
}
/// The reference cannot be asked for experts of another layer's numbering.
inline id_list known(id_list const& ids, u32 n_experts) {
  id_list rest;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(rest), [&](u32 x) { return x < n_experts; });
  return rest;
}
}  // namespace detail

template <u32 Order, class Cell, u32 TokenRows>
struct naive_context_of<score::successor<Order, Cell, TokenRows>> {
  using state = typename score::successor<Order, Cell, TokenRows>::state;
  static constexpr bool ages = true;
  static i32 key_of(score_cell const& c) { return detail::state_in<state>(c).key; }

  class rule final : public naive_context {
   public:
    rule(tuning const& numbers, u32 n_experts, u32 layer)
        : n_(n_experts), sequences_(numbers.sequences),
          score_(n_experts, layer, {Order, 8 * sizeof(Cell), TokenRows}) {}

    std::vector<i32> keys(id_list const& demanded, step_said const& said, row_of_experts const&) const override {
      return score_.keys_of(demanded, detail::known(said.previous, n_), said.sequence % sequences_, said.token);
    }
    void learn(id_list const& demanded, step_said const& said, std::vector<i32> const&,
               std::vector<score_cell>& cells) override {
      score_.step(demanded, detail::known(said.previous, n_), said.sequence % sequences_, said.token);
      for (u32 x = 0; x < n_; ++x) {
        detail::write_state(cells[x], state{score_.key(x), score_.count(x), static_cast<i16>(score_.predicted(x))});
      }
    }

   private:
    u32 n_;
    u32 sequences_;
    successor_reference score_;
  };

  static std::unique_ptr<naive_context> make(tuning const& numbers, u32 n_experts, u32 layer) {
    return std::make_unique<rule>(numbers, n_experts, layer);
  }
};

template <>
struct naive_context_of<score::supplied> {
  using state = score::supplied::state;
  static constexpr bool ages = false;
  static i32 key_of(score_cell const& c) { return detail::state_in<state>(c).key; }

  class rule final : public naive_context {
   public:
    std::vector<i32> keys(id_list const&, step_said const& said, row_of_experts const& row) const override {
      std::vector<i32> result = said.supplied;
      for (u32 x = 0; said.supplied.empty() && x < row.cells.size(); ++x) {
        result.push_back(key_of(row.cells[x]));
      }
      return result;
    }
    void learn(id_list const&, step_said const&, std::vector<i32> const& keys,
               std::vector<score_cell>& cells) override {
      for (u32 x = 0; x < cells.size(); ++x) {
        detail::write_state(cells[x], state{keys[x]});
      }
    }
  };

  static std::unique_ptr<naive_context> make(tuning const&, u32, u32) { return std::make_unique<rule>(); }
};

template <class Base>
struct naive_context_of<score::supplied_with<Base>> {
  using state = typename score::supplied_with<Base>::state;
  static constexpr bool ages = false;
  static i32 key_of(score_cell const& c) { return detail::state_in<state>(c).key; }

  class rule final : public naive_context {
   public:
    explicit rule(tuning const& numbers) : base_(warmset::detail::make_part<Base>(numbers)) {}

    std::vector<i32> keys(id_list const&, step_said const& said, row_of_experts const& row) const override {
      std::vector<i32> result;
      for (u32 x = 0; x < row.cells.size(); ++x) {
        u64 const own = base_.value(detail::state_in<state>(row.cells[x]).base, row.facts[x], row.now);
        result.push_back(detail::saturated_sum(static_cast<i64>(std::min<u64>(own, 0x7FFF'FFFF)),
                                               said.supplied.empty() ? 0 : said.supplied[x]));
      }
      return result;
    }
    void learn(id_list const&, step_said const&, std::vector<i32> const& keys,
               std::vector<score_cell>& cells) override {
      for (u32 x = 0; x < cells.size(); ++x) {
        detail::write_state(cells[x], state{detail::state_in<state>(cells[x]).base, keys[x]});
      }
    }

   private:
    Base base_;
  };

  static std::unique_ptr<naive_context> make(tuning const& numbers, u32, u32) {
    return std::make_unique<rule>(numbers);
  }
};

/// Over a contextual score: its rule, and the keys added.
template <contextual_score Base>
struct naive_context_of<score::supplied_with<Base>> {
  using state = typename Base::state;
  static constexpr bool ages = naive_context_of<Base>::ages;
  static i32 key_of(score_cell const& c) { return naive_context_of<Base>::key_of(c); }

  class rule final : public naive_context {
   public:
    explicit rule(std::unique_ptr<naive_context> base) : base_(std::move(base)) {}

    std::vector<i32> keys(id_list const& demanded, step_said const& said, row_of_experts const& row) const override {
      std::vector<i32> result = base_->keys(demanded, said, row);
      for (u32 x = 0; !said.supplied.empty() && x < result.size(); ++x) {
        result[x] = detail::saturated_sum(result[x], said.supplied[x]);
      }
      return result;
    }
    void learn(id_list const& demanded, step_said const& said, std::vector<i32> const& keys,
               std::vector<score_cell>& cells) override {
      base_->learn(demanded, said, keys, cells);
      for (u32 x = 0; x < cells.size(); ++x) {
        auto learned = detail::state_in<state>(cells[x]);
        learned.key = keys[x];
        detail::write_state(cells[x], learned);
      }
    }

   private:
    std::unique_ptr<naive_context> base_;
  };

  static std::unique_ptr<naive_context> make(tuning const& numbers, u32 n_experts, u32 layer) {
    return std::make_unique<rule>(naive_context_of<Base>::make(numbers, n_experts, layer));
  }
};

}  // namespace warmset::kit
