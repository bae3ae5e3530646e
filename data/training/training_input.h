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

/// One training sample: token ids and, for each, whether it is supervised (a label of the loss).
struct TrainingSample {
  std::vector<int64_t> ids;
  std::vector<uint8_t> supervised;
  std::string category;   // the record's "category", else ""
  int64_t part = 0;       // 0, 1, ..: number among the samples of its record
  SampleOrigin origin{};  // empty: the prompt is the tokens before the first supervised one
};

/// A record that was skipped.
struct BadRecord {
  std::string file;
  int64_t line;  // 1-based
  std::string reason;
};

/// Reads training data: JSON lines or one JSON array, with records of these forms: {"messages"},
/// {"conversations"},
/// {"prompt","completion"}, {"question","answer"}, {"instruction","input","output"}, {"text"}, variants of
/// these,
/// {"token_ids","loss_mask"}, and the output of `clover-infer batch`, whose `token_ids` are kept.  The path
/// of a record:
///   record_texts.h      cuts the file into records
///   training_record.h   parses one record
///   sample_builder.h    renders and tokenises it into samples
///   token_store.h       stores the samples (train/store/prepare.cc)
/// Samples are cut to `max_length` tokens.  A record without a supervised token within that length is bad.
class TrainingReader {
 public:
  TrainingReader(const Tokenizer& tokenizer, const ChatTemplate& chat_template, int64_t max_length,
                 int64_t vocab_size);

  /// The samples of one record, mostly one; several where a later turn's prompt has other tokens than the
  /// turns before it (sample_builder.h).  InputError says what is wrong with the record.
  std::vector<TrainingSample> parse(std::string_view line) const;

  /// A warning about the chat template, to print before the first record; "": none.
  std::string notice() const;

  /// Reads all records of a file in order.  Bad ones are reported to `on_bad` and skipped.  InputError when
  /// the file cannot be read.
  void read(const std::filesystem::path& file, const std::function<void(TrainingSample&&)>& on_sample,
            const std::function<void(const BadRecord&)>& on_bad) const;

 private:
  const Tokenizer* tokenizer_;
  const ChatTemplate* chat_template_;
  int64_t max_length_;
  int64_t vocab_size_;
};

}  // namespace clover::data
