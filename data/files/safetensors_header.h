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
  std::vector<int64_t> shape;  // product times the element size == end - begin
  uint64_t begin = 0;          // bytes from the start of the file
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, HeaderEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Parses and checks the header of the file whose bytes are `file`: every rule of the format (size fields,
/// UTF-8, JSON, no holes, no overlap, no overflow, all bytes accounted for) and beyond it no duplicate keys,
/// no unknown fields and no trailing bytes.  InputError begins with `where`.  Work and memory are
/// proportional to the header's length.
SafetensorsHeader parse_safetensors_header(std::string_view file, const std::string& where);

/// Bits of one element of a dtype of the format; 0 when there is no such dtype.
int64_t safetensors_dtype_bits(std::string_view dtype);

constexpr uint64_t safetensors_header_limit = 100'000'000;

}  // namespace clover::data
