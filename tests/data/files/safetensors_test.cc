#include "data/files/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "data/files/error.h"
#include "tests/support/goldens.h"
#include "tests/support/input_error.h"
#include "tests/support/temporary_folder.h"

namespace clover::data {
namespace {

namespace fs = std::filesystem;
using test::input_error;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SafetensorsTest : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string file_with(const std::string& header, const std::string& data) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + data;
}

const char* const two_tensors =
    R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";

TEST_F(SafetensorsTest, ReadsEveryDtypeOfAFileMadeByThePythonPackage) {
  const auto reader = SafetensorsReader::open(test::goldens() / "safetensors/every_dtype.safetensors");
  const at::Tensor base = at::arange(-6, 6).reshape({3, 4});
  const at::Tensor quarters = base.to(at::kDouble) * 0.25;
  const std::vector<std::pair<std::string, at::ScalarType>> floats{{"f64", at::kDouble},
                                                                   {"f32", at::kFloat},
                                                                   {"f16", at::kHalf},
                                                                   {"bf16", at::kBFloat16},
                                                                   {"f8_e4m3", at::kFloat8_e4m3fn},
                                                                   {"f8_e5m2", at::kFloat8_e5m2}};
  for (const auto& [name, dtype] : floats) {
    const at::Tensor tensor = reader.read(name);
    EXPECT_EQ(tensor.scalar_type(), dtype) << name;
    // The expected values are rounded the same way: e5m2 has two bits of mantissa.
    EXPECT_TRUE(tensor.to(at::kDouble).equal(quarters.to(dtype).to(at::kDouble))) << name;
  }
  const std::vector<std::pair<std::string, at::ScalarType>> integers{
      {"i64", at::kLong}, {"i32", at::kInt}, {"i16", at::kShort}, {"i8", at::kChar}};
  for (const auto& [name, dtype] : integers) EXPECT_TRUE(reader.read(name).equal(base.to(dtype))) << name;
  EXPECT_TRUE(reader.read("u8").equal((base + 6).to(at::kByte)));
  EXPECT_TRUE(reader.read("bool").equal(base.remainder(3) == 0));
  EXPECT_EQ(reader.read("scalar").dim(), 0);
  EXPECT_EQ(reader.read("scalar").item<float>(), 2.5f);
  EXPECT_EQ(reader.read("empty").sizes(), at::IntArrayRef({0, 5}));
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  EXPECT_EQ(reader.metadata().at("naïve"), "ümlaut");
  EXPECT_THAT(input_error([&] { reader.read("u32"); }), AllOf(HasSubstr("'u32'"), HasSubstr("U32")));
}

TEST_F(SafetensorsTest, WritesWhatItReads) {
  const at::Tensor matrix = at::arange(12).reshape({3, 4});
  const NamedTensors tensors{{"transposed", matrix.to(at::kFloat).t()},
                             {"strided", matrix.to(at::kBFloat16).slice(1, 0, 4, 2)},
                             {"mask", matrix > 4},
                             {"scalar", at::ones({}, at::kDouble)},
                             {"none", at::empty({0, 7}, at::kShort)},
                             {"half", matrix.to(at::kHalf)},
                             {"bytes", matrix.to(at::kByte)},
                             {"ids", matrix}};
  const fs::path file = folder_ / "model.safetensors";
  write_safetensors(file, tensors, {{"format", "pt"}});
  for (const fs::path& place : {file, folder_}) {
    const auto reader = SafetensorsReader::open(place);
    EXPECT_EQ(reader.names().size(), tensors.size());
    for (const auto& [name, tensor] : tensors) {
      EXPECT_EQ(reader.info(name).dtype, tensor.scalar_type()) << name;
      EXPECT_TRUE(reader.read(name, tensor.sizes()).equal(tensor)) << name;
    }
    EXPECT_EQ(reader.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  }
}

TEST_F(SafetensorsTest, WrittenLayoutIsTheReferenceLayout) {
  const fs::path file = folder_ / "x.safetensors";
  write_safetensors(file, {{"byte", at::ones({3}, at::kByte)},
                           {"b", at::ones({2}, at::kFloat)},
                           {"a", at::ones({1}, at::kFloat)},
                           {"wide", at::ones({1}, at::kLong)}});
  const std::string bytes = bytes_of(file);
  const size_t header_size =
      static_cast<unsigned char>(bytes[0]) + 256u * static_cast<unsigned char>(bytes[1]);
  EXPECT_EQ(header_size % 8, 0u);
  EXPECT_EQ(bytes.size(), 8 + header_size + 8 + 4 + 8 + 3);
  const auto header = nlohmann::json::parse(bytes.substr(8, header_size));
  EXPECT_EQ(header["wide"]["data_offsets"], nlohmann::json({0, 8}));
  EXPECT_EQ(header["a"]["data_offsets"], nlohmann::json({8, 12}));
  EXPECT_EQ(header["b"]["data_offsets"], nlohmann::json({12, 20}));
  EXPECT_EQ(header["byte"]["data_offsets"], nlohmann::json({20, 23}));
}

TEST_F(SafetensorsTest, ReadTensorOutlivesTheReaderAndChangingItLeavesTheFileAlone) {
  const fs::path file = folder_ / "x.safetensors";
  write_safetensors(file, {{"a", at::arange(100000)}});
  const std::string before = bytes_of(file);
  at::Tensor tensor;
  {
    const auto reader = SafetensorsReader::open(file);
    tensor = reader.read("a");
  }
  fs::remove(file);
  EXPECT_TRUE(tensor.equal(at::arange(100000)));
  write("x.safetensors", before);
  tensor.fill_(3);
  EXPECT_TRUE(SafetensorsReader::open(file).read("a").equal(at::arange(100000)));
}

TEST_F(SafetensorsTest, CopiesTensorsThatAreNotAligned) {
  std::string header =
      R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"f":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  const float value = 1.5f;
  std::string data(5, '\7');
  std::memcpy(data.data() + 1, &value, 4);
  EXPECT_EQ(SafetensorsReader::open(write("x", file_with(header, data))).read("f").item<float>(), value);
}

TEST_F(SafetensorsTest, ReadsShardsAndRefusesAnIndexThatDisagrees) {
  write_safetensors(folder_ / "s1.safetensors", {{"a", at::ones({2})}, {"c", at::ones({3})}});
  write_safetensors(folder_ / "s2.safetensors", {{"b", at::zeros({2})}});
  const auto open_with = [&](const std::string& map) {
    write("model.safetensors.index.json", R"({"metadata":{"total_size":28},"weight_map":)" + map + "}");
    return SafetensorsReader::open(folder_);
  };
  const auto reader = open_with(R"({"a":"s1.safetensors","b":"s2.safetensors","c":"s1.safetensors"})");
  EXPECT_THAT(reader.names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(reader.read("b").sum().item<float>(), 0);

  const auto error_with = [&](const std::string& map) { return input_error([&] { open_with(map); }); };
  EXPECT_THAT(error_with(R"({"a":"s1.safetensors","b":"s1.safetensors","c":"s1.safetensors"})"),
              AllOf(HasSubstr("'b'"), HasSubstr("s1.safetensors")));
  EXPECT_THAT(error_with(R"({"a":"s1.safetensors","b":"s2.safetensors"})"), HasSubstr("'c'"));
  EXPECT_THAT(error_with(R"({"a":"s1.safetensors","b":"s2.safetensors","c":"s3.safetensors"})"),
              HasSubstr("s3.safetensors"));
  for (const char* path : {"../s1.safetensors", "/etc/passwd", "x\\\\y", "", ".."}) {
    EXPECT_THAT(error_with(std::string(R"({"a":")") + path + "\"}"), HasSubstr("plain name")) << path;
  }
  EXPECT_THAT(error_with(R"({"a":7})"), HasSubstr("expected a file name"));
  EXPECT_THAT(error_with("[]"), HasSubstr("weight_map"));
  write_safetensors(folder_ / "s2.safetensors", {{"b", at::zeros({2})}, {"a", at::zeros({2})}});
  EXPECT_THAT(error_with(R"({"a":"s1.safetensors","b":"s2.safetensors","c":"s1.safetensors"})"),
              HasSubstr("also in"));
}

TEST_F(SafetensorsTest, SaysWhatIsMissingOrMisshapen) {
  const fs::path file = folder_ / "x.safetensors";
  write_safetensors(file, {{"a", at::ones({2, 3})}});
  const auto reader = SafetensorsReader::open(file);
  EXPECT_THAT(input_error([&] { reader.info("lm_head"); }),
              AllOf(HasSubstr("lm_head"), HasSubstr("x.safetensors")));
  EXPECT_THAT(input_error([&] {
                reader.read("a", {3, 2});
              }),
              AllOf(HasSubstr("'a' has shape [2, 3]"), HasSubstr("expected [3, 2]")));
  EXPECT_THAT(input_error([&] { SafetensorsReader::open(folder_ / "no"); }),
              HasSubstr("no: cannot be opened"));
  EXPECT_THAT(input_error([&] { SafetensorsReader::open(folder_); }), HasSubstr("found neither"));
}

TEST_F(SafetensorsTest, RefusesToWriteWhatItCouldNotReadAndLeavesNothingBehind) {
  const fs::path file = folder_ / "x.safetensors";
  const at::Tensor one = at::ones({1});
  EXPECT_THAT(input_error([&] { write_safetensors(file, {{"a", one}, {"a", one}}); }), HasSubstr("twice"));
  EXPECT_THAT(input_error([&] {
                write_safetensors(file, {{"__metadata__", one}});
              }),
              HasSubstr("__metadata__"));
  EXPECT_THAT(input_error([&] {
                write_safetensors(file, {{"a", one.to(at::kComplexFloat)}});
              }),
              HasSubstr("dtype"));
  EXPECT_THAT(input_error([&] { write_safetensors(file, {{"\xff", one}}); }), HasSubstr("UTF-8"));
  EXPECT_THAT(input_error([&] {
                write_safetensors(folder_ / "missing" / "x", {{"a", one}});
              }),
              HasSubstr("cannot be created"));
  EXPECT_TRUE(fs::is_empty(folder_));
}

struct BadHeader {
  std::string header;
  std::string message;
};

TEST_F(SafetensorsTest, RefusesEachKindOfBadHeaderByName) {
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  const std::string good = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const std::vector<BadHeader> cases{
      {"", "begin with '{'"},
      {" {}", "begin with '{'"},
      {"[]", "begin with '{'"},
      {"{", "not valid JSON"},
      {"{} x", "not valid JSON"},
      {R"({"a":)" + good + "}" + std::string("\0{", 2), "not valid JSON"},
      {"{\"\xff\":" + good + "}", "not valid UTF-8"},
      {R"({"a":)" + good + R"(,"a":)" + good + "}", "'a' twice"},
      {R"({"__metadata__":{},"__metadata__":{},"a":)" + good + "}", "twice"},
      {R"({"__metadata__":{"k":"1","k":"2"},"a":)" + good + "}", "'k' twice"},
      {R"({"__metadata__":{"k":1},"a":)" + good + "}", "strings to strings"},
      {R"({"__metadata__":{"k":{}},"a":)" + good + "}", "strings to strings"},
      {R"({"__metadata__":[],"a":)" + good + "}", "expected an object"},
      {R"({"a":3})", "expected an object, found a number"},
      {R"({"a":{"dtype":"U8","shape":[4]}})", "must have dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "twice"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1}})", "unknown field 'x'"},
      {entry("\"U9\"", "[4]", "[0,4]"), "unknown dtype 'U9'"},
      {entry("8", "[4]", "[0,4]"), "dtype: expected a string"},
      {entry("\"U8\"", "[-4]", "[0,4]"), "a negative number"},
      {entry("\"U8\"", "[4.0]", "[0,4]"), "fractional"},
      {entry("\"U8\"", "[18446744073709551615]", "[0,4]"), "a huge number"},
      {entry("\"U8\"", "[[4]]", "[0,4]"), "found an array"},
      {entry("\"U8\"", "4", "[0,4]"), "shape: expected a list"},
      {entry("\"U8\"", "[4]", "[0]"), "two numbers"},
      {entry("\"U8\"", "[4]", "[0,4,4]"), "two numbers"},
      {entry("\"U8\"", "[4]", "[4,0]"), "a hole or an overlap"},
      {entry("\"U8\"", "[3]", "[1,4]"), "a hole or an overlap"},
      {entry("\"U8\"", "[5]", "[0,5]"), "truncated"},
      {entry("\"U8\"", "[3]", "[0,3]"), "the file holds 4"},
      {entry("\"U8\"", "[3]", "[0,4]"), "a shape of 3 bytes"},
      {entry("\"F32\"", "[4611686018427387905]", "[0,4]"), "cannot be stored"},
      {entry("\"U8\"", "[4294967296,4294967296,4]", "[0,4]"), "cannot be stored"},
      {entry("\"U8\"", "[0,4611686018427387904,4611686018427387904]", "[0,0]"), "cannot be stored"},
      {entry("\"F4\"", "[7]", "[0,4]"), "cannot be stored"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       "a hole or an overlap"},
  };
  for (const BadHeader& bad : cases) {
    const fs::path file = write("bad", file_with(bad.header, "1234"));
    EXPECT_THAT(input_error([&] { SafetensorsReader::open(file); }),
                AllOf(HasSubstr(bad.message), HasSubstr("bad: ")))
        << bad.header;
  }
  const auto error_for = [&](const std::string& bytes) {
    return input_error([&] { SafetensorsReader::open(write("bad", bytes)); });
  };
  EXPECT_THAT(error_for(""), HasSubstr("only 0 bytes"));
  EXPECT_THAT(error_for("1234567"), HasSubstr("only 7 bytes"));
  EXPECT_THAT(error_for(std::string(8, '\xff') + "{}"), HasSubstr("the limit"));
  EXPECT_THAT(error_for(std::string("\3\0\0\0\0\0\0\0{}", 10)), HasSubstr("truncated"));
  EXPECT_THAT(error_for(file_with(R"({"m":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "\1")), "");
  const auto mask = SafetensorsReader::open(
      write("mask", file_with(R"({"m":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "\2")));
  EXPECT_THAT(input_error([&] { mask.read("m"); }), HasSubstr("other than 0 and 1"));
  EXPECT_THAT(
      input_error([&] { SafetensorsReader::open(write("n", file_with(std::string(1 << 20, '['), ""))); }),
      HasSubstr("begin with"));
  EXPECT_THAT(input_error([&] { SafetensorsReader::open("/dev/zero"); }), HasSubstr("regular file"));
}

/// Opens the file and reads all tensors; false on an InputError.  Any other exception fails the test.
bool accepted(const fs::path& file) {
  try {
    const auto reader = SafetensorsReader::open(file);
    for (const std::string& name : reader.names()) {
      const at::Tensor tensor = reader.read(name);
      if (tensor.numel() > 0) tensor.to(at::kDouble).sum();  // touches every byte
    }
    return true;
  } catch (const InputError&) {
    return false;
  }
}

TEST_F(SafetensorsTest, EveryTruncationIsRefused) {
  const std::string whole = file_with(two_tensors, "12345678abc");
  ASSERT_TRUE(accepted(write("x", whole)));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(accepted(write("x", whole.substr(0, size)))) << size;
  }
  EXPECT_FALSE(accepted(write("x", whole + "z")));
}

TEST_F(SafetensorsTest, SurvivesMutatedHeaders) {
  std::mt19937 random(20240601);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  const std::string pieces[] = {
      "-",   "1",    "0",   "9999999999999999999", "[",       "]", "{", "}", ",", ":", "\"", "null",
      "1e9", "\xff", "F64", std::string(1, '\0'),  "\\u0000", "a", " "};
  int refused = 0;
  constexpr int rounds = 1500;
  for (int round = 0; round < rounds; ++round) {
    std::string header = two_tensors;
    for (size_t edits = 1 + below(3); edits > 0 && !header.empty(); --edits) {
      const size_t at = below(header.size());
      switch (below(4)) {
        case 0:
          header[at] = static_cast<char>(random());
          break;
        case 1:
          header.erase(at, 1 + below(6));
          break;
        case 2:
          header.insert(at, pieces[below(std::size(pieces))]);
          break;
        default:
          header.insert(at, header.substr(below(header.size()), below(40)));
      }
    }
    std::string file = file_with(header, "12345678abc");
    if (below(10) == 0) file[below(8)] = static_cast<char>(random());
    refused += !accepted(write("x", file));
  }
  // The others are valid files: a renamed tensor, spaces, another dtype of the same width.
  EXPECT_GT(refused, rounds * 8 / 10);
}

}  // namespace
}  // namespace clover::data
