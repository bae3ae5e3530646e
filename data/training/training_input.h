#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "data/training/sample_groups.h"

namespace clover::data {

/// One training sample: token ids and, for each, whether it is a supervised label.
struct TrainingSample {
  std::vector<int64_t> ids;
  std::vector<uint8_t> supervised;
  std::string category;   // the record's "category", else ""
  int64_t part = 0;       // 1, 2, .. for the second sample and those behind it that one record makes
  SampleOrigin origin{};  // empty: the tokens before the first supervised one
};

struct BadRecord {
  std::string file;
  int64_t line;  // 1-based
  std::string reason;
};

/// Reads records of every shape of training data, one JSON object a line or all in one JSON array:
/// {"messages"}, {"conversations"}, {"prompt","completion"}, {"question","answer"},
/// {"instruction","input","output"}, {"text"}, relatives of theirs,
/// {"token_ids","loss_mask"}, and the output of `clover-infer batch` (its `token_ids` as they are, behind the
/// prompt rendered from the same fields).  `max_length` cuts samples; a record whose supervised tokens are
/// all cut away, or that has none, is bad.
class TrainingReader {
 public:
  TrainingReader(const Tokenizer& tokenizer, const ChatTemplate& chat_template, int64_t max_length,
                 int64_t vocab_size);

  /// One record; InputError says what is wrong with it.  It is one sample, or several where the decoder reads
  /// its later turns behind other tokens than were said before.
  std::vector<TrainingSample> parse(std::string_view line) const;

  /// What is to be known before the first record, in one sentence; "": nothing.
  std::string notice() const;

  /// All records of a file in order; bad ones go to `on_bad` and are skipped.  InputError when the file
  /// cannot be read.
  void read(const std::filesystem::path& file, const std::function<void(TrainingSample&&)>& on_sample,
            const std::function<void(const BadRecord&)>& on_bad) const;

 private:
  const Tokenizer* tokenizer_;
  const ChatTemplate* chat_template_;
  int64_t max_length_;
  int64_t vocab_size_;
};

}  // namespace clover::data
