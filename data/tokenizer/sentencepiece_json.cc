#include "data/tokenizer/sentencepiece_json.h"

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "data/files/error.h"
#include "data/files/hash.h"
#include "data/text/metaspace.h"
#include "data/text/normalizer.h"
#include "data/text/utf8.h"
#include "data/tokenizer/character_bpe.h"
#include "data/tokenizer/encode_segments.h"
#include "data/tokenizer/files/added_vocabulary.h"
#include "data/tokenizer/files/token_decoder.h"
#include "data/tokenizer/files/tokenizer_json.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"
#include "data/tokenizer/unigram.h"

namespace clover::data {
namespace {

using nlohmann::json;

json type_of_model(const json& model) {
  if (model.contains("type")) return model["type"];
  return model.contains("merges") ? "BPE" : "Unigram";  // old files state no type
}

// Whether the pre-tokenizer splits at spaces although the normalizer has replaced all of them, as in Gemma's
// files.  Such a pre-tokenizer does nothing.
bool is_redundant_split(const json& pre_tokenizer, const Normalizer& normalizer) {
  using Step = Normalizer::Step;
  const auto removes_spaces = [](const Step& step) {
    return step.kind == Step::Kind::replace && step.pattern == " " &&
           step.content.find(' ') == std::string::npos;
  };
  if (!pre_tokenizer.is_object() || pre_tokenizer.value("type", json()) != "Split") return false;
  const json pattern = pre_tokenizer.value("pattern", json());
  return pattern.is_object() && pattern.value("String", json()) == " " && !normalizer.steps().empty() &&
         removes_spaces(normalizer.steps().back());
}

// The "normalizer", "pre_tokenizer" and "decoder" to use.  transformers' Llama class, which is for BPE, takes
// only vocabulary and merges from the file and builds these three itself.  Published Llama files have a
// Prepend normalizer; applied to each segment it would put a space after every added token.
json text_pipeline(const json& tokenizer, const TokenizerSettings& settings) {
  if (!settings.llama_class || type_of_model(tokenizer["model"]) != "BPE") {
    json parts;
    for (const char* part : {"normalizer", "pre_tokenizer", "decoder"})
      parts[part] = tokenizer.value(part, json());
    return parts;
  }
  const char* scheme = !settings.prefix_space ? "never" : settings.legacy ? "always" : "first";
  json decoders = {{{"type", "Replace"}, {"pattern", {{"String", space_mark}}}, {"content", " "}},
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}}};
  if (settings.prefix_space)
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1u}, {"stop", 0u}});
  return {
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "Metaspace"}, {"replacement", space_mark}, {"prepend_scheme", scheme}, {"split", false}}},
      {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}}};
}

class SentencePieceJson final : public Tokenizer {
 public:
  SentencePieceJson(const json& tokenizer, const std::string& where, const TokenizerSettings& settings,
                    const std::filesystem::path& model_file);

  Encoding encode_with_spans(std::string_view text, const EncodeOptions& options) const override;
  std::string token_bytes(int64_t id, bool first) const override;
  bool is_special(int64_t id) const override {
    return id >= 0 && id < vocab_size() && special_[static_cast<size_t>(id)];
  }
  std::optional<int64_t> token_id(std::string_view token) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(token_strings_.size()); }
  std::optional<int64_t> bos() const override { return bos_; }
  bool adds_bos() const override { return adds_bos_; }
  std::string hash() const override { return hash_; }

 private:
  struct SegmentPlace {           // where a part of the text between added tokens lies
    const AlignedText& repaired;  // the whole text with valid UTF-8 (encode_segments.h)
    size_t offset;                // bytes from its beginning to the segment
    bool parse_special;           // as EncodeOptions::parse_special
  };
  void add_added_tokens(const json& tokenizer, const std::string& where, const TokenizerSettings& settings);
  void choose_bos(const json& tokenizer, const std::string& where, const TokenizerSettings& settings,
                  bool has_model_file);
  void set_hash(const json& tokenizer, const TokenizerSettings& settings,
                const std::filesystem::path& model_file);
  bool has_same_tokens(const Tokenizer& other) const;
  void encode_segment(std::string_view text, const SegmentPlace& place, Encoding& encoding) const;
  // Appends the tokens of `text`, which begins at byte `begin` of `normalized`, the normalised segment.
  void encode_between_tokens(std::string_view text, const AlignedText& normalized, size_t begin,
                             const SegmentPlace& place, Encoding& encoding) const;

  std::unique_ptr<SubwordModel> model_;
  Normalizer normalizer_;
  Metaspace metaspace_;
  TokenDecoder decoder_;
  std::vector<AddedToken> listed_tokens_;     // the added tokens that tokenizer.json lists
  AddedTokenTrie tokens_in_raw_text_;         // searched before normalisation
  AddedTokenTrie tokens_in_normalized_text_;  // searched after normalisation
  std::unordered_map<std::string, int64_t> added_ids_;
  std::vector<std::string> token_strings_;  // by id, as in the vocabulary; "" for an unused id
  std::vector<std::string> bytes_of_id_;    // bytes of a token that does not begin the text
  std::vector<bool> special_;
  std::optional<int64_t> bos_;
  bool adds_bos_ = false;
  std::string hash_;
};

SentencePieceJson::SentencePieceJson(const json& tokenizer, const std::string& where,
                                     const TokenizerSettings& settings,
                                     const std::filesystem::path& model_file) {
  const json& model = tokenizer["model"];
  const json pipeline = text_pipeline(tokenizer, settings);
  normalizer_ = Normalizer::from_json(pipeline["normalizer"], where + ": normalizer");
  const json& pre_tokenizer = pipeline["pre_tokenizer"];
  if (!is_redundant_split(pre_tokenizer, normalizer_))
    metaspace_ = Metaspace::from_json(pre_tokenizer, where + ": pre_tokenizer");
  decoder_ = TokenDecoder::from_json(pipeline["decoder"], where + ": decoder");
  if (type_of_model(model) == "Unigram") {
    model_ = std::make_unique<Unigram>(model, where + ": model");
  } else {
    model_ = std::make_unique<CharacterBpe>(model, where + ": model");
  }
  add_added_tokens(tokenizer, where, settings);
  choose_bos(tokenizer, where, settings, !model_file.empty());
  set_hash(tokenizer, settings, model_file);
}

void SentencePieceJson::add_added_tokens(const json& tokenizer, const std::string& where,
                                         const TokenizerSettings& settings) {
  const auto model_id = [&](const std::string& content) { return model_->id_of(content); };
  listed_tokens_ = read_listed_tokens(tokenizer, where, model_id);
  AddedVocabulary added(model_->size(), model_id);
  warn_once(settings.folder, settings.sources.add_all_to(added, listed_tokens_));
  token_strings_ = model_->token_strings();
  const std::vector<AddedToken> tokens = added.tokens();
  if (!tokens.empty() && static_cast<size_t>(tokens.back().id) >= token_strings_.size())
    token_strings_.resize(static_cast<size_t>(tokens.back().id) + 1);
  special_.resize(token_strings_.size());
  for (AddedToken token : tokens) {
    added_ids_.emplace(token.content, token.id);
    // transformers' Llama class looks for all added tokens in the raw text: early Llama files say that <s> is
    // normalized, and a Prepend normalizer would then hide it.
    token.normalized = token.normalized && !settings.llama_class;
    const std::string text_in_file = token.content;
    // As in the tokenizers library, a token that is looked for in normalised text is also decoded to its
    // normalised text.  The library knows special tokens by their text in the file, so one whose text the
    // normalizer changes is special no longer when decoded.
    if (token.normalized) token.content = std::string(normalizer_.apply(text_in_file).text());
    special_[static_cast<size_t>(token.id)] = token.special && token.content == text_in_file;
    token_strings_[static_cast<size_t>(token.id)] = token.content;
    (token.normalized ? tokens_in_normalized_text_ : tokens_in_raw_text_).add(token);
  }
  bytes_of_id_.reserve(token_strings_.size());
  for (const std::string& text : token_strings_)
    bytes_of_id_.push_back(text.empty() ? text : decoder_.bytes_of(text, false));
}

void SentencePieceJson::choose_bos(const json& tokenizer, const std::string& where,
                                   const TokenizerSettings& settings, bool has_model_file) {
  const json processor = tokenizer.value("post_processor", json());
  const std::optional<std::string> leading = read_leading_token(processor, where);
  if (leading) {
    bos_ = token_id(*leading);
  } else if (settings.bos_token()) {
    bos_ = token_id(*settings.bos_token());
  } else {
    bos_ = settings.bos_id;
  }
  // Where the files do not say add_bos_token, BOS is added if the post-processor puts a token first, or, as
  // transformers' SentencePiece tokenizers do, if there is a tokenizer.model and no post-processor.
  const bool default_adds_bos = leading.has_value() || (has_model_file && processor.is_null());
  adds_bos_ = bos_.has_value() && settings.add_bos.value_or(default_adds_bos);
}

bool SentencePieceJson::has_same_tokens(const Tokenizer& other) const {
  if (other.vocab_size() != vocab_size() || other.bos() != bos_ || other.adds_bos() != adds_bos_)
    return false;
  for (int64_t id = 0; id < vocab_size(); ++id)
    if (other.token_bytes(id, false) != token_bytes(id, false)) return false;
  return true;
}

// Where tokenizer.model holds the same tokens, the hash is that of tokenizer.model.  Heads and stores that
// were made when tokenizer.model had precedence recorded that hash.
void SentencePieceJson::set_hash(const json& tokenizer, const TokenizerSettings& settings,
                                 const std::filesystem::path& model_file) {
  if (!model_file.empty()) {
    std::unique_ptr<Tokenizer> model_tokenizer;
    try {
      model_tokenizer = load_sentencepiece_model(model_file, settings, listed_tokens_);
    } catch (const InputError&) {  // as transformers, ignores a bad tokenizer.model
    }
    if (model_tokenizer && has_same_tokens(*model_tokenizer)) {
      hash_ = model_tokenizer->hash();
      return;
    }
    warn_once(settings.folder, {"tokenizer.json and tokenizer.model hold different tokens; the former is "
                                "taken, as transformers does"});
  }
  uint64_t hash = fnv1a(tokenizer["model"].dump() + "\n");
  const json pipeline = text_pipeline(tokenizer, settings);
  for (const char* part : {"normalizer", "pre_tokenizer", "decoder"})
    hash = fnv1a(pipeline[part].dump() + "\n", hash);
  AddedVocabulary added(model_->size(), [&](const std::string& content) { return model_->id_of(content); });
  settings.sources.add_all_to(added, listed_tokens_);  // whose warnings add_added_tokens has printed
  hash_ =
      hex(fnv1a(std::to_string(bos_.value_or(-1)) + (adds_bos_ ? "+" : "-"), extend_hash(hash, {}, added)));
}

Encoding SentencePieceJson::encode_with_spans(std::string_view text, const EncodeOptions& options) const {
  return encode_segments(
      text, options.parse_special, options.add_bos && adds_bos_ ? bos_ : std::nullopt, /*max_gib=*/1,
      tokens_in_raw_text_,
      [&](std::string_view segment, size_t begin, const AlignedText& repaired, Encoding& encoding) {
        encode_segment(segment, {repaired, begin, options.parse_special}, encoding);
      });
}

void SentencePieceJson::encode_segment(std::string_view text, const SegmentPlace& place,
                                       Encoding& encoding) const {
  const AlignedText normalized = normalizer_.apply(text);
  for (const AddedTokenTrie::Part& part :
       tokens_in_normalized_text_.split(normalized.text(), place.parse_special)) {
    if (part.token != nullptr) {
      const auto [from, to] = normalized.source_range(part.begin, part.end);
      encoding.ids.push_back(part.token->id);
      encoding.spans.push_back(place.repaired.source_range(place.offset + from, place.offset + to));
    } else {
      encode_between_tokens(normalized.text().substr(part.begin, part.end - part.begin), normalized,
                            part.begin, place, encoding);
    }
  }
}

void SentencePieceJson::encode_between_tokens(std::string_view text, const AlignedText& normalized,
                                              size_t begin, const SegmentPlace& place,
                                              Encoding& encoding) const {
  // Ranges go back step by step: piece, marked text, normalised segment, segment, repaired text, the text as
  // given.
  const size_t begin_in_text = place.offset + normalized.source_range(begin, begin).first;
  const AlignedText marked = metaspace_.apply(text, begin_in_text == 0);
  std::vector<BpeSymbol> tokens;
  for (const auto& [from, to] : metaspace_.split(marked.text())) {
    const std::string_view piece = marked.text().substr(from, to - from);
    model_->encode(piece, tokens);  // replaces those of the piece before
    for (const BpeSymbol& token : tokens) {
      // The span of a byte token is that of its whole character.
      size_t first = token.begin, last = token.end;
      while (first > 0 && is_continuation_byte(piece[first])) --first;
      while (last < piece.size() && is_continuation_byte(piece[last])) ++last;
      const auto [left, right] = marked.source_range(from + first, from + last);
      const auto [segment_left, segment_right] = normalized.source_range(begin + left, begin + right);
      encoding.ids.push_back(token.id);
      encoding.spans.push_back(
          place.repaired.source_range(place.offset + segment_left, place.offset + segment_right));
    }
  }
}

std::string SentencePieceJson::token_bytes(int64_t id, bool first) const {
  if (id < 0 || id >= vocab_size()) return {};
  const auto index = static_cast<size_t>(id);
  return first && !token_strings_[index].empty() ? decoder_.bytes_of(token_strings_[index], true)
                                                 : bytes_of_id_[index];
}

std::optional<int64_t> SentencePieceJson::token_id(std::string_view token) const {
  const std::string key(token);
  if (const auto added = added_ids_.find(key); added != added_ids_.end()) return added->second;
  if (const auto id = model_->id_of(key)) return id;
  std::string marked;  // as the vocabulary writes spaces
  for (const char c : token) {
    if (c == ' ')
      marked += space_mark;
    else
      marked += c;
  }
  return model_->id_of(marked);
}

}  // namespace

bool is_sentencepiece_json(const json& tokenizer) {
  if (!tokenizer.is_object() || !tokenizer.contains("model") || !tokenizer["model"].is_object()) return false;
  for (const char* part : {"pre_tokenizer", "decoder"})
    if (tokenizer.value(part, json()).dump().find("\"ByteLevel\"") != std::string::npos) return false;
  const json type = type_of_model(tokenizer["model"]);
  return type == "BPE" || type == "Unigram";
}

std::unique_ptr<Tokenizer> load_sentencepiece_json(const json& tokenizer, const std::string& where,
                                                   const TokenizerSettings& settings,
                                                   const std::filesystem::path& model_file) {
  return std::make_unique<SentencePieceJson>(tokenizer, where, settings, model_file);
}

}  // namespace clover::data
