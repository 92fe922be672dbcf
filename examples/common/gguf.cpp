// SPDX-License-Identifier: Apache-2.0
#include "gguf.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gguf {

static_assert(std::endian::native == std::endian::little,
              "the file's numbers are little endian and read in place");

namespace {

using u8 = std::uint8_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

/// Types of metadata values.
enum value_type : u32 {
  uint8 = 0,
  int8 = 1,
  uint16 = 2,
  int16 = 3,
  uint32 = 4,
  int32 = 5,
  float32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  uint64 = 10,
  int64 = 11,
  float64 = 12
};

/// Bytes of a value that is a number; 0 of what is none.
constexpr u64 size_of(u32 type) noexcept {
  constexpr u64 sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(sizes) ? sizes[type] : 0;
}

constexpr bool is_whole(u32 type) noexcept {
  return size_of(type) != 0 && type != float32 && type != float64 && type != boolean;
}

struct encoding_facts {
  u32 type;
  char const* name;
  u64 weights;  ///< of a block
  u64 bytes;    ///< of a block
};

constexpr encoding_facts encodings[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
};

encoding_facts const* facts_of(u32 type) noexcept {
  for (encoding_facts const& e : encodings) {
    if (e.type == type) {
      return &e;
    }
  }
  return nullptr;
}

bool is_computable(encoding e) noexcept {
  return e == encoding::f32 || e == encoding::f16 || e == encoding::q8_0;
}

/// a * b, or the largest number where that does not fit.
u64 product(u64 a, u64 b) noexcept {
  return a != 0 && b > std::numeric_limits<u64>::max() / a ? std::numeric_limits<u64>::max()
                                                           : a * b;
}

/// A name out of a file as it may stand in a message: one line, not long.
std::string shown(std::string_view name) {
  std::string text;
  for (char c : name.substr(0, 64)) {
    text += c >= ' ' && c <= '~' ? c : '?';
  }
  return "'" + text + (name.size() > 64 ? "...'" : "'");
}

std::string shape_text(std::span<u64 const> shape) {
  std::string text;
  for (u64 n : shape) {
    text += (text.empty() ? "" : " x ") + std::to_string(n);
  }
  return text;
}

template <class T>
T load(std::byte const* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// A whole number of any width; what is beyond 63 bits is the largest.
i64 integer_at(u32 type, std::byte const* p) noexcept {
  switch (type) {
  case uint8:
    return load<u8>(p);
  case int8:
    return load<std::int8_t>(p);
  case uint16:
    return load<std::uint16_t>(p);
  case int16:
    return load<std::int16_t>(p);
  case uint32:
    return load<u32>(p);
  case int32:
    return load<std::int32_t>(p);
  case uint64: {
    u64 const v = load<u64>(p);
    return v > static_cast<u64>(std::numeric_limits<i64>::max()) ? std::numeric_limits<i64>::max()
                                                                 : static_cast<i64>(v);
  }
  default:
    return load<i64>(p);
  }
}

}  // namespace

char const* name_of(encoding e) noexcept {
  encoding_facts const* const f = facts_of(static_cast<u32>(e));
  return f == nullptr ? "unknown" : f->name;
}

u64 tensor::n_elements() const noexcept {
  u64 n = 1;
  for (u64 d : shape) {
    n *= d;
  }
  return n;
}

/// Where reading has got to. Never beyond the end.
class file::cursor {
 public:
  cursor(file const& of) : file_(of) {}

  u64 at() const noexcept { return at_; }
  u64 left() const noexcept { return file_.bytes_.size() - at_; }

  std::span<std::byte const> take(u64 n, char const* what) {
    if (n > left()) {
      file_.fail("truncated at byte " + std::to_string(at_) + ": " + what + " needs " +
                 std::to_string(n) + " bytes and " + std::to_string(left()) + " are left");
    }
    std::span<std::byte const> const taken = file_.bytes_.subspan(at_, n);
    at_ += n;
    return taken;
  }
  template <class T>
  T number(char const* what) {
    return load<T>(take(sizeof(T), what).data());
  }
  std::string_view text(char const* what) {
    u64 const n = number<u64>(what);
    std::span<std::byte const> const taken = take(n, what);
    return {reinterpret_cast<char const*>(taken.data()), taken.size()};
  }

 private:
  file const& file_;
  u64 at_ = 0;
};

file::file(std::string const& path) : name_(path) {
  map(path);
  try {
    read();
  } catch (...) {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    throw;
  }
}

file::file(std::span<std::byte const> bytes, std::string name)
    : name_(std::move(name)), bytes_(bytes) {
  read();
}

file::file(file&& other) noexcept
    : name_(std::move(other.name_)), bytes_(other.bytes_),
      is_mapped_(std::exchange(other.is_mapped_, false)), keys_(std::move(other.keys_)),
      tensors_(std::move(other.tensors_)), by_name_(std::move(other.by_name_)) {}

file::~file() {
  if (is_mapped_) {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

void file::fail(std::string const& what) const {
  throw format_error(name_ + ": " + what);
}

void file::map(std::string const& path) {
  int const descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    fail(std::strerror(errno));
  }
  struct stat facts {};
  char const* why = nullptr;
  if (::fstat(descriptor, &facts) != 0) {
    why = std::strerror(errno);
  } else if (S_ISDIR(facts.st_mode)) {
    why = "a directory, not a file";
  } else if (!S_ISREG(facts.st_mode)) {
    why = "not a regular file";
  } else if (facts.st_size == 0) {
    why = "the file is empty";
  } else {
    std::size_t const size = static_cast<std::size_t>(facts.st_size);
    void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (memory == MAP_FAILED) {
      why = std::strerror(errno);
    } else {
      bytes_ = {static_cast<std::byte const*>(memory), size};
      is_mapped_ = true;
    }
  }
  ::close(descriptor);
  if (why != nullptr) {
    fail(why);
  }
}

void file::read() {
  cursor at(*this);
  if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
    fail("not a GGUF file: it does not begin with GGUF");
  }
  (void)at.take(4, "the magic");
  u32 const version = at.number<u32>("the version");
  if (version != 3) {
    fail("GGUF version " + std::to_string(version) + "; version 3 is read");
  }
  u64 const n_tensors = at.number<u64>("the number of tensors");
  u64 const n_keys = at.number<u64>("the number of keys");
  constexpr u64 least_key = 8 + 4 + 1;             // an empty name, a type, a byte
  constexpr u64 least_tensor = 8 + 4 + 8 + 4 + 8;  // an empty name, one dimension, type and offset
  if (n_keys > at.left() / least_key) {
    fail(std::to_string(n_keys) + " metadata keys do not fit into " + std::to_string(at.left()) +
         " bytes");
  }
  if (n_tensors > at.left() / least_tensor) {
    fail(std::to_string(n_tensors) + " tensors do not fit into " + std::to_string(at.left()) +
         " bytes");
  }
  for (u64 i = 0; i < n_keys; ++i) {
    std::string_view const key = at.text("a metadata key");
    if (!keys_.emplace(key, read_value(at, key)).second) {
      fail("metadata key " + shown(key) + " occurs twice");
    }
  }
  tensors_.reserve(n_tensors);
  for (u64 i = 0; i < n_tensors; ++i) {
    read_tensor(at);
  }
  place_tensors(at);
}

file::value file::read_value(cursor& at, std::string_view key) const {
  value v;
  v.type = at.number<u32>("the type of a metadata value");
  if (v.type == string) {
    v.texts.push_back(at.text("a metadata value"));
    return v;
  }
  if (v.type != array) {
    if (size_of(v.type) == 0) {
      fail("metadata key " + shown(key) + " has the unknown type " + std::to_string(v.type));
    }
    v.bytes = at.take(size_of(v.type), "a metadata value");
    return v;
  }
  v.element_type = at.number<u32>("the type of an array");
  v.n = at.number<u64>("the length of an array");
  bool const of_texts = v.element_type == string;
  u64 const least = of_texts ? 8 : size_of(v.element_type);
  if (least == 0) {
    fail("metadata key " + shown(key) + " is an array of type " + std::to_string(v.element_type) +
         "; arrays of numbers and strings are read");
  }
  if (v.n > at.left() / least) {
    fail("metadata key " + shown(key) + " is an array of " + std::to_string(v.n) +
         " elements, which do not fit into " + std::to_string(at.left()) + " bytes");
  }
  if (!of_texts) {
    v.bytes = at.take(v.n * least, "an array");
    return v;
  }
  v.texts.reserve(v.n);
  for (u64 i = 0; i < v.n; ++i) {
    v.texts.push_back(at.text("an array of strings"));
  }
  return v;
}

void file::read_tensor(cursor& at) {
  tensor t;
  t.name = at.text("a tensor's name");
  std::string const who = "tensor " + shown(t.name);
  u32 const n_dimensions = at.number<u32>("a tensor's dimensions");
  if (n_dimensions == 0 || n_dimensions > 4) {
    fail(who + " has " + std::to_string(n_dimensions) +
         " dimensions; between 1 and 4 are possible");
  }
  u64 n = 1;
  for (u32 i = 0; i < n_dimensions; ++i) {
    u64 const size = at.number<u64>("a tensor's shape");
    n = product(n, size);
    t.shape.push_back(size);
  }
  u32 const type = at.number<u32>("a tensor's type");
  offsets_.push_back(at.number<u64>("a tensor's offset"));
  encoding_facts const* const facts = facts_of(type);
  if (facts == nullptr) {
    fail(who + " has the unknown type " + std::to_string(type));
  }
  t.type = static_cast<encoding>(type);
  if (n == 0) {
    fail(who + " is empty: its shape is " + shape_text(t.shape));
  }
  if (t.shape[0] % facts->weights != 0) {
    fail(who + " has rows of " + std::to_string(t.shape[0]) + " weights; " + facts->name +
         " has blocks of " + std::to_string(facts->weights));
  }
  if (product(n / facts->weights, facts->bytes) > bytes_.size()) {
    fail(who + " of shape " + shape_text(t.shape) + " is larger than the file");
  }
  u64 bytes = facts->bytes;
  for (u32 i = 0; i < n_dimensions; ++i) {
    t.stride.push_back(bytes);
    bytes *= i == 0 ? t.shape[0] / facts->weights : t.shape[i];
  }
  if (!by_name_.emplace(t.name, tensors_.size()).second) {
    fail(who + " occurs twice");
  }
  tensors_.push_back(std::move(t));
}

void file::place_tensors(cursor const& end) {
  u64 const alignment = has("general.alignment") ? count("general.alignment") : 32;
  if (alignment == 0 || alignment % 8 != 0 || alignment > 1u << 20) {
    fail("an alignment of " + std::to_string(alignment) +
         " bytes; it must be a multiple of 8, and at most 1 MiB");
  }
  u64 const begin = (end.at() + alignment - 1) / alignment * alignment;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    tensor& t = tensors_[i];
    u64 const offset = offsets_[i];
    u64 const size =
        t.stride.back() * (t.shape.size() == 1
                               ? t.n_elements() / facts_of(static_cast<u32>(t.type))->weights
                               : t.shape.back());
    u64 const room = begin <= bytes_.size() ? bytes_.size() - begin : 0;
    if (offset % alignment != 0) {
      fail("tensor " + shown(t.name) + " lies at offset " + std::to_string(offset) +
           ", which is not a multiple of " + std::to_string(alignment));
    }
    if (offset > room || size > room - offset) {
      fail("tensor " + shown(t.name) + " of " + std::to_string(size) + " bytes at offset " +
           std::to_string(offset) + " lies outside of the file, whose data has " +
           std::to_string(room) + " bytes");
    }
    t.bytes = bytes_.subspan(begin + offset, size);
  }
  offsets_ = {};
  std::vector<tensor const*> placed;
  for (tensor const& t : tensors_) {
    placed.push_back(&t);
  }
  std::sort(placed.begin(), placed.end(),
            [](tensor const* a, tensor const* b) { return a->bytes.data() < b->bytes.data(); });
  for (std::size_t i = 1; i < placed.size(); ++i) {
    if (placed[i - 1]->bytes.data() + placed[i - 1]->bytes.size() > placed[i]->bytes.data()) {
      fail("tensors " + shown(placed[i - 1]->name) + " and " + shown(placed[i]->name) + " overlap");
    }
  }
}

tensor const* file::find(std::string_view tensor_name) const noexcept {
  auto const found = by_name_.find(tensor_name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

tensor const& file::get(std::string_view tensor_name, std::span<u64 const> shape) const {
  tensor const* const t = find(tensor_name);
  if (t == nullptr) {
    fail("tensor " + shown(tensor_name) + " is missing");
  }
  if (!std::equal(t->shape.begin(), t->shape.end(), shape.begin(), shape.end())) {
    fail("tensor " + shown(tensor_name) + " has the shape " + shape_text(t->shape) +
         " instead of " + shape_text(shape));
  }
  if (!is_computable(t->type)) {
    fail("tensor " + shown(tensor_name) + " is " + name_of(t->type) +
         "; F32, F16 and Q8_0 can be computed with");
  }
  return *t;
}

std::vector<float> file::floats(tensor const& t) const {
  if (!is_computable(t.type)) {
    fail("tensor " + shown(t.name) + " is " + name_of(t.type) +
         "; F32, F16 and Q8_0 can be computed with");
  }
  std::vector<float> out(t.n_elements());
  std::byte const* const from = t.bytes.data();
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (t.type == encoding::f32) {
      out[i] = load<float>(from + 4 * i);
    } else if (t.type == encoding::f16) {
      out[i] = to_float(load<std::uint16_t>(from + 2 * i));
    } else {
      std::byte const* const block = from + i / 32 * 34;
      out[i] = to_float(load<std::uint16_t>(block)) *
               static_cast<float>(load<std::int8_t>(block + 2 + i % 32));
    }
  }
  return out;
}

file::value const& file::find_value(std::string_view key, char const* wanted,
                                    bool (*fits)(value const&)) const {
  auto const found = keys_.find(key);
  if (found == keys_.end()) {
    fail("metadata key " + shown(key) + " is missing");
  }
  if (!fits(found->second)) {
    fail("metadata key " + shown(key) + " is not " + wanted);
  }
  return found->second;
}

u64 file::count(std::string_view key) const {
  value const& v =
      find_value(key, "a whole number", [](value const& x) { return is_whole(x.type); });
  if (v.type == uint64) {
    return load<u64>(v.bytes.data());
  }
  i64 const n = integer_at(v.type, v.bytes.data());
  if (n < 0) {
    fail("metadata key " + shown(key) + " is " + std::to_string(n) + ", below 0");
  }
  return static_cast<u64>(n);
}

double file::number(std::string_view key) const {
  value const& v = find_value(key, "a number", [](value const& x) {
    return is_whole(x.type) || x.type == float32 || x.type == float64;
  });
  double const n = v.type == float32   ? double{load<float>(v.bytes.data())}
                   : v.type == float64 ? load<double>(v.bytes.data())
                                       : static_cast<double>(integer_at(v.type, v.bytes.data()));
  if (!std::isfinite(n)) {
    fail("metadata key " + shown(key) + " is not a finite number");
  }
  return n;
}

std::string_view file::text(std::string_view key) const {
  return find_value(key, "a string", [](value const& v) { return v.type == string; }).texts.front();
}

std::span<std::string_view const> file::texts(std::string_view key) const {
  return find_value(key, "an array of strings",
                    [](value const& v) { return v.type == array && v.element_type == string; })
      .texts;
}

std::vector<i64> file::integers(std::string_view key) const {
  value const& v = find_value(key, "an array of whole numbers", [](value const& x) {
    return x.type == array && is_whole(x.element_type);
  });
  std::vector<i64> out(v.n);
  for (u64 i = 0; i < v.n; ++i) {
    out[i] = integer_at(v.element_type, v.bytes.data() + i * size_of(v.element_type));
  }
  return out;
}

vocabulary file::vocabulary() const {
  gguf::vocabulary v;
  v.tokens = texts("tokenizer.ggml.tokens");
  v.merges = texts("tokenizer.ggml.merges");
  v.model = text("tokenizer.ggml.model");
  v.splitter = has("tokenizer.ggml.pre") ? text("tokenizer.ggml.pre") : "";
  if (v.tokens.empty()) {
    fail("the vocabulary has no token");
  }
  if (has("tokenizer.ggml.token_type")) {
    v.kinds = integers("tokenizer.ggml.token_type");
    if (v.kinds.size() != v.tokens.size()) {
      fail("the vocabulary has " + std::to_string(v.tokens.size()) + " tokens and " +
           std::to_string(v.kinds.size()) + " token types");
    }
  }
  if (has("tokenizer.ggml.eos_token_id")) {
    u64 const id = count("tokenizer.ggml.eos_token_id");
    if (id >= v.tokens.size()) {
      fail("the token that ends a text is " + std::to_string(id) + " of " +
           std::to_string(v.tokens.size()));
    }
    v.end_of_text = static_cast<i64>(id);
  }
  return v;
}

}  // namespace gguf
