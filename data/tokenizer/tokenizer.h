#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace clover::data {

struct EncodeOptions {
  bool add_bos = false;       // put BOS before the text, if the tokenizer's post-processor does so
  bool parse_special = true;  // "<|im_end|>" in the text becomes the special token
};

/// Token ids and, for each, the byte range [begin, end) of the text it came from; an added BOS has an empty
/// range.
struct Encoding {
  std::vector<int64_t> ids;
  std::vector<std::pair<size_t, size_t>> spans;
};

/// A tokenizer read from a model folder.  There are three kinds:
///   byte_level_bpe.h           a byte-level tokenizer.json: GPT-2, Llama 3, Qwen2 and digit pre-tokenizers
///   sentencepiece_json.h       a tokenizer.json of SentencePiece kind: BPE over characters, Unigram
///   sentencepiece_tokenizer.h  a tokenizer.model, through the SentencePiece library
/// `load` prefers tokenizer.json.  files/ reads tokenizer_config.json and the other files of added tokens.
/// Invalid UTF-8 is encoded as U+FFFD.  Thread-safe after loading.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// InputError when the folder has neither file, or a file asks for something that is not supported.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& folder);

  virtual Encoding encode_with_spans(std::string_view text, const EncodeOptions& options) const = 0;
  std::vector<int64_t> encode(std::string_view text, const EncodeOptions& options = {}) const {
    return encode_with_spans(text, options).ids;
  }

  /// Bytes of one token; "" for ids outside the vocabulary.  `first`: the token begins the text, where
  /// SentencePiece drops a leading space.
  virtual std::string token_bytes(int64_t id, bool first) const = 0;

  /// The text of the ids, without special tokens when `skip_special`.
  std::string decode(std::span<const int64_t> ids, bool skip_special = true) const;

  virtual bool is_special(int64_t id) const = 0;
  /// Id of the token with this text.
  virtual std::optional<int64_t> token_id(std::string_view token) const = 0;
  virtual int64_t vocab_size() const = 0;          // one past the largest id
  virtual std::optional<int64_t> bos() const = 0;  // id of the BOS token
  virtual bool adds_bos() const = 0;               // whether its post-processor puts BOS before a text
  virtual std::string hash() const = 0;            // 16 hex digits over everything that decides its ids

  /// Text of the eos_token, if the folder's files name one, and its id.
  const std::optional<std::string>& eos_text() const { return eos_text_; }
  std::optional<int64_t> eos() const { return eos_text_ ? token_id(*eos_text_) : std::nullopt; }

 private:
  std::optional<std::string> eos_text_;
};

/// Incremental detokenizer: turns a stream of ids into text.  Bytes of an incomplete character are held back
/// until it is complete; bytes that cannot become a character are emitted as U+FFFD.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);
  /// Makes the stream continue the text of `ids`, which is not emitted.  The first token of the stream then
  /// keeps its leading space, and completes a character that began in `ids`.  Call it before `push`.
  void start_after(std::span<const int64_t> ids);
  std::string push(int64_t id);  // returns the text that is complete now
  std::string finish();          // returns what was held back

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_ = true;                // no token was pushed yet
  std::string held_back_;            // bytes of an incomplete character
  size_t held_back_from_start_ = 0;  // how many of these bytes belong to the ids given to start_after
};

}  // namespace clover::data
