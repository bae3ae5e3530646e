#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace clover::data {

/// The entry of one tensor in a safetensors header.
struct HeaderEntry {
  std::string dtype;           // as the file spells it: "BF16"
  std::vector<int64_t> shape;  // the product of the dimensions times the element size is end - begin
  uint64_t begin = 0;          // its data: bytes [begin, end) of the file
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, HeaderEntry> entries;   // by tensor name
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

/// Parses and checks the header of a file.  `file`: all bytes of the file.  InputError (beginning with
/// `where`) for a breach of the format: length field, UTF-8, JSON, and tensors that do not cover the data
/// without gap, overlap or overflow.  Beyond the format, duplicate keys and unknown fields are errors, too.
/// Time and memory are proportional to the header's length.
SafetensorsHeader parse_safetensors_header(std::string_view file, const std::string& where);

/// Bits per element of a dtype as the format spells it, "BF16"; 0 for an unknown one.
int64_t safetensors_dtype_bits(std::string_view dtype);

constexpr uint64_t safetensors_header_limit = 100'000'000;  // bytes

}  // namespace clover::data
