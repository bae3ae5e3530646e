#include "train/features/feature_file.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "data/files/checksum.h"
#include "data/files/files.h"
#include "data/files/safetensors.h"
#include "tests/support/input_error.h"
#include "tests/support/temporary_folder.h"

namespace clover::train {
namespace {

using test::input_error;
using testing::HasSubstr;

class FeatureFileTest : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(1);
    const auto random = [] { return at::randn({3, 4}).to(at::kBFloat16); };
    features_ = {{random(), random(), random()}, {}, {random(), random(), random()}};
    file_.write(features_);
  }
  std::vector<model::Features> read() const { return file_.read(3, 4, at::kBFloat16); }
  void rewrite(const data::NamedTensors& tensors, const std::map<std::string, std::string>& about) const {
    data::write_safetensors(file_.path, tensors, about);
  }
  data::NamedTensors tensors() const {
    data::NamedTensors tensors;
    const auto reader = data::SafetensorsReader::open(file_.path);
    for (const std::string& name : reader.names()) tensors.emplace_back(name, reader.read(name).clone());
    return tensors;
  }

  const test::TemporaryFolder folder_;
  const FeatureFile file_{folder_ / "features.safetensors", {{"target", "t"}, {"data", "d"}}, {2}};
  std::vector<model::Features> features_;
};

TEST_F(FeatureFileTest, GivesBackWhatWasWritten) {
  const auto found = read();
  ASSERT_EQ(found.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    for (const auto member : model::feature_members) {
      ASSERT_EQ((found[i].*member).defined(), (features_[i].*member).defined());
      if (!(found[i].*member).defined()) continue;
      EXPECT_TRUE(at::equal(found[i].*member, features_[i].*member));
    }
  }
}

TEST_F(FeatureFileTest, AFlippedBitAnywhereIsNoticed) {
  const std::string whole = data::read_file(file_.path);
  for (size_t byte = 0; byte < whole.size(); ++byte) {
    for (const size_t bit : {byte % 8, (byte + 3) % 8}) {
      std::string damaged = whole;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
      folder_.write("features.safetensors", damaged);
      EXPECT_NE(input_error([&] { read(); }), "") << "bit " << bit << " of byte " << byte;
    }
  }
  folder_.write("features.safetensors", whole.substr(0, whole.size() - 1));
  EXPECT_NE(input_error([&] { read(); }), "");
  folder_.write("features.safetensors", whole);
  EXPECT_EQ(input_error([&] { read(); }), "");
}

TEST_F(FeatureFileTest, SaysWhatIsDamagedAndWhatToDo) {
  auto changed = tensors();
  changed[0].second[0] += 1;
  rewrite(changed, data::SafetensorsReader::open(file_.path).metadata());
  EXPECT_THAT(input_error([&] { read(); }), HasSubstr("is damaged: its checksum is "));
  EXPECT_THAT(input_error([&] { read(); }), HasSubstr("remove it, or give another --feature-file"));
}

TEST_F(FeatureFileTest, AFileOfBeforeThereWereChecksumsIsRead) {
  auto about = data::SafetensorsReader::open(file_.path).metadata();
  ASSERT_EQ(about.erase("checksum"), 1u);
  rewrite(tensors(), about);
  EXPECT_TRUE(at::equal(read()[2].layers, features_[2].layers));
}

TEST(Checksum, IsOneOfTheBytesAndTheirOrderAlone) {
  std::string bytes(3 << 18, 'a');
  std::mt19937 random(1);
  for (char& byte : bytes) byte = static_cast<char>(random());
  const uint64_t sum = data::checksum(bytes);
  EXPECT_EQ(data::checksum(bytes), sum);
  EXPECT_EQ(data::checksum("a"), 3378413332866254879u) << "the same on every machine and in every version";
  for (const size_t at : {size_t{0}, size_t{63}, size_t{64}, bytes.size() / 2, bytes.size() - 1}) {
    std::string other = bytes;
    other[at] ^= 1;
    EXPECT_NE(data::checksum(other), sum) << at;
  }
  EXPECT_NE(data::checksum(bytes.substr(1)), sum);
  EXPECT_NE(data::checksum(bytes + '\0'), sum);
  EXPECT_NE(data::checksum(std::string(64, '\0')), data::checksum(std::string(65, '\0')));
  std::string swapped = bytes.substr(1 << 18, 1 << 18) + bytes.substr(0, 1 << 18) + bytes.substr(2 << 18);
  EXPECT_NE(data::checksum(swapped), sum);
  EXPECT_NE(data::checksum("b", data::checksum("a")), data::checksum("a", data::checksum("b")));
}

}  // namespace
}  // namespace clover::train
