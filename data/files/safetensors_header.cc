#include "data/files/safetensors_header.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "data/files/error.h"

namespace clover::data {
namespace {

using Json = nlohmann::json;

struct DtypeBits {
  std::string_view name;
  int64_t bits;
};

constexpr std::array<DtypeBits, 20> dtypes{{
    {"BOOL", 8}, {"U8", 8},    {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"I16", 16},    {"U16", 16},
    {"F16", 16}, {"BF16", 16}, {"I32", 32},    {"U32", 32},    {"F32", 32},    {"F64", 64},    {"I64", 64},
    {"U64", 64}, {"C64", 64},  {"F8_E8M0", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},
}};

constexpr size_t max_rank = 64;  // what ATen's iterators can hold

/// A name from the file, for error messages: in quotes, cut to 120 bytes, control characters replaced by "?".
std::string in_quotes(const std::string& name) {
  std::string shown = name.substr(0, 120);
  std::replace_if(
      shown.begin(), shown.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return "'" + shown + (name.size() > 120 ? "...'" : "'");
}

/// SAX handler that accepts {name: {"dtype", "shape", "data_offsets"}, "__metadata__": {text: text}} and
/// nothing else.  It stops at the first unexpected value, so that a hostile header cannot take memory.  The
/// offsets that it stores count from the start of the data; `check_layout` makes them offsets in the file.
class HeaderEvents : public nlohmann::json_sax<Json> {
 public:
  HeaderEvents(SafetensorsHeader& header, std::string where) : header_(header), where_(std::move(where)) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a fractional or huge number");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        return unexpected("a huge number");
      if (entry_.shape.size() == max_rank)
        fail(tensor() + " has more than " + std::to_string(max_rank) + " dimensions");
      entry_.shape.push_back(static_cast<int64_t>(value));
    } else if (place_ == Place::offsets) {
      if (offset_count_ == 2) fail(tensor() + ": data_offsets must hold two numbers, found more");
      (offset_count_++ == 0 ? entry_.begin : entry_.end) = value;
    } else {
      return unexpected("a number");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::dtype) {
      if (safetensors_dtype_bits(value) == 0) fail(tensor() + " has the unknown dtype " + in_quotes(value));
      entry_.dtype = value;
      place_ = Place::fields;
    } else if (place_ == Place::metadata_value) {
      header_.metadata[key_] = value;
      place_ = Place::metadata;
    } else {
      return unexpected("a string");
    }
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::start) {
      place_ = Place::names;
    } else if (place_ == Place::entry) {
      place_ = Place::fields;
    } else if (place_ == Place::metadata_start) {
      place_ = Place::metadata;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (place_ == Place::names) return name_key(value);
    if (place_ == Place::metadata) {
      if (header_.metadata.count(value))
        fail("the header's __metadata__ has the key " + in_quotes(value) + " twice");
      key_ = value;
      place_ = Place::metadata_value;
      return true;
    }
    const std::array<std::string_view, 3> fields{"dtype", "shape", "data_offsets"};
    const std::array<Place, 3> places{Place::dtype, Place::shape_start, Place::offsets_start};
    for (size_t i = 0; i < fields.size(); ++i) {
      if (value != fields[i]) continue;
      if (seen_[i]) fail(tensor() + " has the field " + in_quotes(value) + " twice");
      seen_[i] = true;
      place_ = places[i];
      return true;
    }
    fail(tensor() + " has the unknown field " + in_quotes(value));
  }

  bool end_object() override {
    if (place_ == Place::metadata) {
      place_ = Place::names;
    } else if (place_ == Place::fields) {
      if (!seen_[0] || !seen_[1] || !seen_[2]) fail(tensor() + " must have dtype, shape and data_offsets");
      header_.entries.emplace(name_, std::move(entry_));
      place_ = Place::names;
    } else {
      place_ = Place::done;
    }
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::shape_start) {
      place_ = Place::shape;
    } else if (place_ == Place::offsets_start) {
      place_ = Place::offsets;
    } else {
      return unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && offset_count_ != 2)
      fail(tensor() + ": data_offsets must hold two numbers");
    place_ = Place::fields;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    const bool utf8 = std::string(error.what()).find("UTF-8") != std::string::npos;
    fail(std::string("the header is not valid ") + (utf8 ? "UTF-8" : "JSON") + " at byte " +
         std::to_string(position));
  }

 private:
  /// What the handler expects next.
  enum class Place {
    start,           // the header itself
    names,           // a key of the header: a tensor's name or "__metadata__"
    entry,           // the object of a tensor
    fields,          // a key in that object
    dtype,           // the value of "dtype"
    shape_start,     // the "[" of a shape
    shape,           // its numbers
    offsets_start,   // the "[" of data_offsets
    offsets,         // its numbers
    metadata_start,  // the object of "__metadata__"
    metadata,        // a key in that object
    metadata_value,  // its value
    done,
  };

  bool name_key(const std::string& value) {
    if (value == "__metadata__") {
      if (metadata_seen_) fail("the header has the key '__metadata__' twice");
      metadata_seen_ = true;
      place_ = Place::metadata_start;
      return true;
    }
    if (header_.entries.count(value)) fail("the header names the tensor " + in_quotes(value) + " twice");
    name_ = value;
    entry_ = {};
    offset_count_ = 0;
    seen_ = {};
    place_ = Place::entry;
    return true;
  }

  std::string tensor() const { return "tensor " + in_quotes(name_); }
  [[noreturn]] void fail(const std::string& what) const { throw InputError(where_ + ": " + what); }

  bool unexpected(const char* found) {
    switch (place_) {
      case Place::start:
        fail(std::string("the header must be a JSON object, found ") + found);
      case Place::names:
      case Place::entry:
        fail(tensor() + ": expected an object, found " + found);
      case Place::dtype:
        fail(tensor() + ": dtype: expected a string, found " + found);
      case Place::shape_start:
      case Place::shape:
        fail(tensor() + ": shape: expected a list of whole numbers, found " + found);
      case Place::offsets_start:
      case Place::offsets:
        fail(tensor() + ": data_offsets: expected two whole numbers, found " + found);
      case Place::metadata_start:
        fail(std::string("__metadata__: expected an object, found ") + found);
      default:
        fail("__metadata__ must map strings to strings, found " + std::string(found));
    }
  }

  SafetensorsHeader& header_;
  std::string where_;
  Place place_ = Place::start;
  std::string name_;            // of the current tensor
  std::string key_;             // the current key of "__metadata__"
  HeaderEntry entry_;           // of the current tensor
  int offset_count_ = 0;        // how many data_offsets it has so far
  std::array<bool, 3> seen_{};  // whether it has dtype, shape, data_offsets
  bool metadata_seen_ = false;
};

/// Computes the size of a tensor in bytes; false when it overflows or is no whole number of bytes.  For the
/// overflow check a dimension of 0 counts as 1, since ATen computes strides that way.
bool byte_count(const HeaderEntry& entry, uint64_t& bytes) {
  int64_t elements = 1;
  int64_t extent = 1;  // the product of the dimensions, each at least 1
  for (const int64_t dimension : entry.shape) {
    if (__builtin_mul_overflow(extent, std::max<int64_t>(dimension, 1), &extent)) return false;
    elements *= dimension;
  }
  int64_t bits = 0;
  if (__builtin_mul_overflow(extent, safetensors_dtype_bits(entry.dtype), &bits)) return false;
  bits = elements * safetensors_dtype_bits(entry.dtype);
  if (bits % 8 != 0) return false;
  bytes = static_cast<uint64_t>(bits / 8);
  return true;
}

/// Checks that the tensors cover the data exactly, and adds `data_start` to their offsets.
void check_layout(SafetensorsHeader& header, uint64_t data_start, uint64_t file_size,
                  const std::string& where) {
  const uint64_t data_size = file_size - data_start;
  std::vector<std::pair<const std::string, HeaderEntry>*> order;
  for (auto& item : header.entries) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t expected_begin = 0;
  for (auto* item : order) {
    HeaderEntry& entry = item->second;
    const std::string tensor = where + ": tensor " + in_quotes(item->first);
    if (entry.begin != expected_begin) {
      throw InputError(tensor + " begins at data byte " + std::to_string(entry.begin) + ", expected " +
                       std::to_string(expected_begin) + " (a hole or an overlap)");
    }
    if (entry.end < entry.begin || entry.end > data_size) {
      throw InputError(tensor + " ends at data byte " + std::to_string(entry.end) + ", expected between " +
                       std::to_string(entry.begin) + " and " + std::to_string(data_size) +
                       ", the end of the file; the file may be truncated");
    }
    uint64_t bytes = 0;
    if (!byte_count(entry, bytes))
      throw InputError(tensor + " has a shape whose size in bytes cannot be stored");
    if (bytes != entry.end - entry.begin) {
      throw InputError(tensor + " has a shape of " + std::to_string(bytes) +
                       " bytes, but data_offsets span " + std::to_string(entry.end - entry.begin));
    }
    expected_begin = entry.end;
    entry.begin += data_start;
    entry.end += data_start;
  }
  if (expected_begin != data_size) {
    throw InputError(where + ": the tensors take " + std::to_string(expected_begin) +
                     " data bytes, but the file holds " + std::to_string(data_size));
  }
}

}  // namespace

int64_t safetensors_dtype_bits(std::string_view dtype) {
  for (const DtypeBits& entry : dtypes) {
    if (entry.name == dtype) return entry.bits;
  }
  return 0;
}

SafetensorsHeader parse_safetensors_header(std::string_view file, const std::string& where) {
  if (file.size() < 8) {
    throw InputError(where + ": expected a safetensors file, found only " + std::to_string(file.size()) +
                     " bytes");
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(file[i]);
  if (length > safetensors_header_limit) {
    throw InputError(where + ": the header claims " + std::to_string(length) +
                     " bytes, more than the limit of " + std::to_string(safetensors_header_limit) +
                     "; is this a safetensors file?");
  }
  if (length > file.size() - 8) {
    throw InputError(where + ": the header claims " + std::to_string(length) + " bytes, but only " +
                     std::to_string(file.size() - 8) + " follow; the file may be truncated");
  }
  const std::string_view text = file.substr(8, length);
  if (text.empty() || text.front() != '{') {
    throw InputError(where + ": the header must be a JSON object and begin with '{'");
  }
  // The parser takes a NUL byte for the end of its input and would ignore what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw InputError(where + ": the header is not valid JSON at byte " + std::to_string(nul + 1));
  }
  SafetensorsHeader header;
  HeaderEvents events(header, where);
  Json::sax_parse(text.begin(), text.end(), &events);
  check_layout(header, 8 + length, file.size(), where);
  return header;
}

}  // namespace clover::data
