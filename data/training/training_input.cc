#include "data/training/training_input.h"

#include <algorithm>

#include "data/files/error.h"
#include "data/files/mapped_file.h"
#include "data/training/record_origin.h"
#include "data/training/record_texts.h"
#include "data/training/sample_builder.h"
#include "data/training/training_record.h"

namespace clover::data {
namespace {

constexpr size_t max_record_bytes = size_t{16} << 20;  // parsed JSON takes many times its size

/// Whether any token is supervised.  The first token does not count, since nothing predicts it.
bool has_labels(const TrainingSample& sample) {
  const auto first = sample.supervised.begin() + std::min<size_t>(1, sample.supervised.size());
  return std::find(first, sample.supervised.end(), uint8_t{1}) != sample.supervised.end();
}

void check_ids(const TrainingSample& sample, int64_t vocab_size) {
  for (const int64_t id : sample.ids) {
    if (id < 0 || id >= vocab_size) {
      throw InputError("token id " + std::to_string(id) + ": expected 0 <= id < " +
                       std::to_string(vocab_size) +
                       ", the target's vocabulary; is this data of another model?");
    }
  }
}

}  // namespace

TrainingReader::TrainingReader(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                               int64_t max_length, int64_t vocab_size)
    : tokenizer_(&tokenizer),
      chat_template_(&chat_template),
      max_length_(max_length),
      vocab_size_(vocab_size) {}

std::vector<TrainingSample> TrainingReader::parse(std::string_view line) const {
  TrainingRecord record = parse_training_record(line);
  std::vector<TrainingSample> samples =
      std::visit(SampleBuilder(*tokenizer_, *chat_template_), record.content);
  for (size_t i = 0; i < samples.size(); ++i) {
    check_ids(samples[i], vocab_size_);
    samples[i].origin = sample_origin(record, i);
    samples[i].category = record.category;
  }
  std::erase_if(samples, [](const TrainingSample& sample) { return !has_labels(sample); });
  if (samples.empty()) throw InputError("the record: expected at least one token to learn from, found none");

  const size_t first_length = samples.front().ids.size();
  for (TrainingSample& sample : samples) {
    if (static_cast<int64_t>(sample.ids.size()) <= max_length_) continue;
    sample.ids.resize(max_length_);
    sample.supervised.resize(max_length_);
  }
  std::erase_if(samples, [](const TrainingSample& sample) { return !has_labels(sample); });
  if (samples.empty()) {
    throw InputError("the record has " + std::to_string(first_length) +
                     " tokens, and the maximum length of " + std::to_string(max_length_) +
                     " cuts away all that are to be learned from");
  }
  samples.front().part = 0;  // the first sample that is left
  return samples;
}

std::string TrainingReader::notice() const {
  return masking_notice(*chat_template_);
}

void TrainingReader::read(const std::filesystem::path& file,
                          const std::function<void(TrainingSample&&)>& on_sample,
                          const std::function<void(const BadRecord&)>& on_bad) const {
  const MappedFile mapped(file);
  RecordTexts texts(mapped.view());
  for (RecordTexts::Record record; texts.next(record);) {
    std::vector<TrainingSample> samples;
    try {
      if (!record.error.empty()) throw InputError(record.error);
      if (record.text.size() > max_record_bytes) {
        throw InputError("the record: expected a line of at most " + std::to_string(max_record_bytes) +
                         " bytes, found " + std::to_string(record.text.size()));
      }
      samples = parse(record.text);
    } catch (const InputError& error) {
      on_bad({file.string(), record.line, error.what()});
      continue;
    }
    for (TrainingSample& sample : samples) on_sample(std::move(sample));
  }
}

}  // namespace clover::data
