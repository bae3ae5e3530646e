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
  bool add_bos = false;       // what the tokenizer's own post-processor would put in front
  bool parse_special = true;  // "<|im_end|>" in the text becomes the control token
};

/// Token ids and, for each, the byte range [begin, end) of the encoded text it came from (empty for an added
/// BOS).
struct Encoding {
  std::vector<int64_t> ids;
  std::vector<std::pair<size_t, size_t>> spans;
};

/// A tokenizer read from a model folder: `tokenizer.json` (byte-level BPE with the GPT-2, Llama-3, Qwen2 or
/// digits pre-tokenizer, or of SentencePiece kind) or `tokenizer.model` (SentencePiece), with
/// `tokenizer_config.json`, the files of added tokens and `generation_config.json` beside it. Text that is
/// not UTF-8 is read with U+FFFD in place of each maximal broken part.  Thread-safe after loading.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// InputError in one sentence when the folder has neither file, or the file asks for something not
  /// supported.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& folder);

  virtual Encoding encode_with_spans(std::string_view text, const EncodeOptions& options) const = 0;
  std::vector<int64_t> encode(std::string_view text, const EncodeOptions& options = {}) const {
    return encode_with_spans(text, options).ids;
  }

  /// Bytes of one token as it continues a text ("" for ids beyond the vocabulary).  `first`: the token begins
  /// the text (SentencePiece drops its leading space there).
  virtual std::string token_bytes(int64_t id, bool first) const = 0;

  /// Bytes of the ids; special tokens are left out when `skip_special`.
  std::string decode(std::span<const int64_t> ids, bool skip_special = true) const;

  virtual bool is_special(int64_t id) const = 0;
  virtual std::optional<int64_t> token_id(std::string_view token) const = 0;  // of one whole token's text
  virtual int64_t vocab_size() const = 0;                                     // one past the largest id
  virtual std::optional<int64_t> bos() const = 0;
  virtual bool adds_bos() const = 0;     // whether the tokenizer puts BOS in front of plain text by itself
  virtual std::string hash() const = 0;  // 16 hex digits of what defines it

  /// Its own end token, which chat templates write; none where its files name none.
  const std::optional<std::string>& eos_text() const { return eos_text_; }
  std::optional<int64_t> eos() const { return eos_text_ ? token_id(*eos_text_) : std::nullopt; }

 private:
  std::optional<std::string> eos_text_;
};

/// Turns a stream of ids into text, never emitting half a character: bytes that may still become a character
/// are held back, and bytes that cannot are emitted as U+FFFD.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);
  /// What comes continues the text of these ids: it keeps its first space, and a character that began there
  /// is whole.  Before anything is pushed.
  void continue_behind(std::span<const int64_t> ids);
  std::string push(int64_t id);  // the text that is certain now
  std::string finish();          // what was held back

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_ = true;
  std::string held_;
  size_t held_before_ = 0;  // of its bytes, those of what it continues
};

}  // namespace clover::data
