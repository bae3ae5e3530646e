#include "train/store/preview.h"

#include <gtest/gtest.h>

namespace clover::train {
namespace {

/// Token i is the i-th of a few literal byte strings.
class ByteStrings : public data::Tokenizer {
 public:
  data::Encoding encode_with_spans(std::string_view, const data::EncodeOptions&) const override { return {}; }
  std::string token_bytes(int64_t id, bool) const override { return bytes_[id]; }
  bool is_special(int64_t) const override { return false; }
  std::optional<int64_t> token_id(std::string_view) const override { return std::nullopt; }
  int64_t vocab_size() const override { return static_cast<int64_t>(bytes_.size()); }
  std::optional<int64_t> bos() const override { return std::nullopt; }
  bool adds_bos() const override { return false; }
  std::string hash() const override { return ""; }

 private:
  std::vector<std::string> bytes_{"ask: ", "yes", "\xe2\x82", "\xac", "\x1b[31m", "\n"};
};

TEST(PreviewTest, MarksSupervisedRunsAndKeepsCharactersWhole) {
  const data::TrainingSample sample{{0, 1, 2, 3, 5, 1}, {0, 1, 1, 1, 0, 1}, ""};
  EXPECT_EQ(preview(sample, ByteStrings(), MarkStyle::brackets), "ask: «yes€»\n«yes»");
  EXPECT_EQ(preview(sample, ByteStrings(), MarkStyle::terminal),
            "ask: \033[4;32myes€\033[0m\n\033[4;32myes\033[0m");
}

TEST(PreviewTest, DataCannotDriveTheTerminal) {
  const data::TrainingSample sample{{4}, {0}, ""};
  EXPECT_EQ(preview(sample, ByteStrings(), MarkStyle::terminal), "\\x1b[31m");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m \x9b \x7f\t\n\xc3\xa9"),
            "\\xc2\\x9b31m \\x9b \\x7f\t\n\xc3\xa9");
}

}  // namespace
}  // namespace clover::train
