#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace clover::data {

/// One entry of a safetensors header, checked.
struct HeaderEntry {
  std::string dtype;           // as the file spells it: "BF16"
  std::vector<int64_t> shape;  // its product times the element size is end - begin
  uint64_t begin = 0;          // bytes from the start of the file
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, HeaderEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Parses and checks the header of a file, whose bytes are `file`.  It checks every rule of the format: size
/// fields, UTF-8, JSON, tensors without gaps, overlap or overflow that cover the whole file; and beyond it
/// that there are no duplicate keys, unknown fields or trailing bytes.  InputError begins with `where`.  Time
/// and memory are proportional to the header's length.
SafetensorsHeader parse_safetensors_header(std::string_view file, const std::string& where);

/// Bits per element of a dtype as the format spells it, "BF16"; 0 for an unknown one.
int64_t safetensors_dtype_bits(std::string_view dtype);

constexpr uint64_t safetensors_header_limit = 100'000'000;

}  // namespace clover::data
