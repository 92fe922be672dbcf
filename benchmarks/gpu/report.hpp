// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace gpu_bench {

/// Whether this machine has a GPU.
bool has_gpu();

/// One measured line: what, how much, of which unit, and what it is compared with.
struct figure {
  std::string name;
  double value;
  std::string unit;
  double bound = 0;        ///< 0: none
  bool at_most = true;     ///< how the bound is meant
  std::string note{};      ///< what a number cannot say
  std::vector<double> samples{};  ///< what the value is the median of, in the JSON alone
  bool holds() const { return bound == 0 || (at_most ? value <= bound : value >= bound); }
};

/// Figures in the order in which they were measured; printed as they come.
class report {
 public:
  /// @param path  of the JSON; empty: none
  explicit report(std::string path) : path_(std::move(path)) {}

  void add(figure f) {
    std::printf("%-64s %10.3f %-8s", f.name.c_str(), f.value, f.unit.c_str());
    if (f.bound != 0) {
      std::printf(" %s %-7.3g %s", f.at_most ? "<=" : ">=", f.bound, f.holds() ? "holds" : "DOES NOT HOLD");
    }
    std::printf("%s%s\n", f.note.empty() ? "" : "  ", f.note.c_str());
    std::fflush(stdout);
    n_failed_ += f.holds() ? 0 : 1;
    figures_.push_back(std::move(f));
  }

  /// Bounds that do not hold.
  unsigned n_failed() const { return n_failed_; }

  /// Writes all of them as one JSON array, in place of what was written before: whoever ends this program at any time finds
  /// a whole file. Names and units hold no character that JSON would escape.
  void save() const {
    if (path_.empty()) {
      return;
    }
    std::string const beside = path_ + ".part";
    std::FILE* const file = std::fopen(beside.c_str(), "w");
    if (file == nullptr) {
      throw std::runtime_error("cannot write " + beside);
    }
    write(file);
    bool const is_whole = std::ferror(file) == 0;
    if (std::fclose(file) != 0 || !is_whole || std::rename(beside.c_str(), path_.c_str()) != 0) {
      throw std::runtime_error("cannot write " + path_);
    }
  }

 private:
  void write(std::FILE* file) const {
    std::fprintf(file, "[\n");
    for (std::size_t i = 0; i < figures_.size(); ++i) {
      figure const& f = figures_[i];
      std::fprintf(file, "  {\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"", f.name.c_str(), f.value,
                   f.unit.c_str());
      if (f.bound != 0) {
        std::fprintf(file, ", \"%s\": %.6g, \"holds\": %s", f.at_most ? "at_most" : "at_least", f.bound,
                     f.holds() ? "true" : "false");
      }
      if (!f.note.empty()) {
        std::fprintf(file, ", \"note\": \"%s\"", escaped(f.note).c_str());
      }
      for (std::size_t j = 0; j < f.samples.size(); ++j) {
        std::fprintf(file, "%s%.6g%s", j == 0 ? ", \"samples\": [" : ", ", f.samples[j],
                     j + 1 == f.samples.size() ? "]" : "");
      }
      std::fprintf(file, "}%s\n", i + 1 == figures_.size() ? "" : ",");
    }
    std::fprintf(file, "]\n");
  }

  static std::string escaped(std::string const& text) {
    std::string out;
    for (char c : text) {
      if (c == '"' || c == '\\') {
        out += '\\';
      }
      out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return out;
  }

  std::string path_;
  std::vector<figure> figures_;
  unsigned n_failed_ = 0;
};

}  // namespace gpu_bench
