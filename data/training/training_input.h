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
  std::vector<int64_t> ids;         // [T]
  std::vector<uint8_t> supervised;  // [T] 0 or 1
  std::string category;             // the record's "category", else ""
  int64_t part = 0;                 // 0, 1, ..: which of the samples of its record
  SampleOrigin origin{};            // empty: its prompt is the tokens before the first supervised one
};

/// A record that was skipped.
struct BadRecord {
  std::string file;
  int64_t line;  // 1-based
  std::string reason;
};

/// Reads training data: JSON lines or one JSON array.  A record has one of these forms, or a variant of one:
///   {"messages"}, {"conversations"}         a conversation
///   {"prompt", "completion"}                text without a chat template, or TRL's two lists of messages
///   {"question", "answer"}, {"instruction", "input", "output"}
///   {"text"}, {"token_ids", "loss_mask"}
///   a line of the output of `clover-infer batch`, whose `token_ids` are kept
/// A record passes through these files:
///   record_texts.h      cuts the file into records
///   training_record.h   parses one record
///   sample_builder.h    renders and tokenises it into samples
///   token_store.h       stores the samples (train/store/prepare.cc calls it)
/// Samples are cut to `max_length` tokens.  A record without a supervised token within that length is bad.
class TrainingReader {
 public:
  TrainingReader(const Tokenizer& tokenizer, const ChatTemplate& chat_template, int64_t max_length,
                 int64_t vocab_size);

  /// The samples of one record, given as JSON text: mostly one, sometimes several (sample_builder.h says
  /// when).  InputError says what is wrong with the record.
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
