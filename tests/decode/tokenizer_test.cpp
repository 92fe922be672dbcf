// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "decode/support.hpp"
#include "support/dice.hpp"

using namespace decode_test;

namespace {

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> all;
  for (std::string_view w : words_of(text)) {
    all.emplace_back(w);
  }
  return all;
}

using list = std::vector<std::string>;

}  // namespace

TEST_CASE("text is cut as the pattern of GPT-2 cuts it") {
  CHECK(words("") == list{});
  CHECK(words("It's 2 for us, isn't it?") ==
        list{"It", "'s", " 2", " for", " us", ",", " isn", "'t", " it", "?"});
  CHECK(words("a  b") == list{"a", " ", " b"});
  CHECK(words("a\n\n  b") == list{"a", "\n\n ", " b"});
  CHECK(words("a\n\tb") == list{"a", "\n", "\t", "b"});
  CHECK(words("end \n") == list{"end", " \n"});
  CHECK(words(" ") == list{" "});
  CHECK(words("x=1;//") == list{"x", "=", "1", ";//"});
  CHECK(words("größer → 中文。") == list{"größer", " →", " 中文", "。"});
  CHECK(words("\xFF"
              "a\xC3") == list{"\xFF", "a", "\xC3"});
}

TEST_CASE("decoding gives back every byte that was encoded") {
  loaded const m(small_model_file());
  warmset_test::dice dice(3);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (warmset::u32 n = dice.below(60); n != 0; --n) {
      char const plain[] = "the int main() { return 0; }\n\t  ";
      text += dice.below(3) == 0 ? static_cast<char>(dice.below(256))
                                 : plain[dice.below(sizeof plain - 1)];
    }
    std::vector<u32> const tokens = m.words.encode(text);
    REQUIRE(m.words.decode(tokens) == text);
    for (u32 t : tokens) {
      REQUIRE(t < m.words.size());
    }
  }
}

TEST_CASE("merges join the strongest pair first") {
  loaded const m(small_model_file());
  CHECK(m.words.encode("the").size() == 1);
  CHECK(m.words.encode(" the").size() == 1);
  CHECK(m.words.encode("<|endoftext|>").size() > 1);  // a text is never a control token
  CHECK(m.words.decode(std::vector<u32>{0}).empty());
  CHECK(m.words.ends(0));
  CHECK(!m.words.ends(1));
}
