#include "data/tokenizer/piece_tokenizer.h"

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "data/files/error.h"
#include "data/files/hash.h"
#include "data/text/metaspace.h"
#include "data/text/normalizer.h"
#include "data/text/utf8.h"
#include "data/tokenizer/character_bpe.h"
#include "data/tokenizer/encode_parts.h"
#include "data/tokenizer/files/added_vocabulary.h"
#include "data/tokenizer/files/token_texts.h"
#include "data/tokenizer/files/tokenizer_json.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"
#include "data/tokenizer/unigram.h"

namespace clover::data {
namespace {

using nlohmann::json;

json type_of_model(const json& model) {
  if (model.contains("type")) return model["type"];
  return model.contains("merges") ? "BPE" : "Unigram";  // old files do not say
}

// Whether the pre-tokenizer cuts at spaces that the normalizer has left none of (Gemma's does).
bool cuts_nothing(const json& pre_tokenizer, const Normalizer& normalizer) {
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

// What is done to text before and after the model.  transformers' Llama class takes vocabulary and merges of
// a file and makes these parts anew: published Llama folders say Prepend, which would put a space behind
// every added token.
json pipeline_of(const json& tokenizer, const TokenizerSettings& settings) {
  if (!settings.llama_class || type_of_model(tokenizer["model"]) != "BPE") {
    json parts;
    for (const char* part : {"normalizer", "pre_tokenizer", "decoder"})
      parts[part] = tokenizer.value(part, json());
    return parts;
  }
  const char* mark = "\xE2\x96\x81";
  const char* scheme = !settings.prefix_space ? "never" : settings.legacy ? "always" : "first";
  json decoders = {{{"type", "Replace"}, {"pattern", {{"String", mark}}}, {"content", " "}},
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}}};
  if (settings.prefix_space)
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1u}, {"stop", 0u}});
  return {{"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "Metaspace"}, {"replacement", mark}, {"prepend_scheme", scheme}, {"split", false}}},
          {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}}};
}

class PieceTokenizer final : public Tokenizer {
 public:
  PieceTokenizer(const json& tokenizer, const std::string& where, const TokenizerSettings& settings,
                 const std::filesystem::path& model_file);

  Encoding encode_with_spans(std::string_view text, const EncodeOptions& options) const override;
  std::string token_bytes(int64_t id, bool first) const override;
  bool is_special(int64_t id) const override {
    return id >= 0 && id < vocab_size() && special_[static_cast<size_t>(id)];
  }
  std::optional<int64_t> token_id(std::string_view token) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(texts_.size()); }
  std::optional<int64_t> bos() const override { return bos_; }
  bool adds_bos() const override { return adds_bos_; }
  std::string hash() const override { return hash_; }

 private:
  struct Segment {  // a part between added tokens
    const MappedText& repaired;
    size_t offset;  // in its text
    bool parse_special;
  };
  void take_added_tokens(const json& tokenizer, const std::string& where, const TokenizerSettings& settings);
  void take_bos(const json& tokenizer, const std::string& where, const TokenizerSettings& settings,
                bool has_model_file);
  void take_hash(const json& tokenizer, const TokenizerSettings& settings,
                 const std::filesystem::path& model_file);
  bool has_tokens_of(const Tokenizer& other) const;
  void encode_segment(std::string_view text, const Segment& segment, Encoding& encoding) const;
  void encode_plain(std::string_view text, const MappedText& normalized, size_t begin, const Segment& segment,
                    Encoding& encoding) const;

  std::unique_ptr<PieceModel> model_;
  Normalizer normalizer_;
  Metaspace metaspace_;
  TokenTexts decoder_;
  std::vector<AddedToken> listed_;
  AddedTokens raw_tokens_;         // found in the text as it is
  AddedTokens normalized_tokens_;  // found after normalisation
  std::unordered_map<std::string, int64_t> added_ids_;
  std::vector<std::string> texts_;        // by id, as the vocabulary writes them; "" for an unused id
  std::vector<std::string> bytes_of_id_;  // of tokens that continue a text
  std::vector<bool> special_;
  std::optional<int64_t> bos_;
  bool adds_bos_ = false;
  std::string hash_;
};

PieceTokenizer::PieceTokenizer(const json& tokenizer, const std::string& where,
                               const TokenizerSettings& settings, const std::filesystem::path& model_file) {
  const json& model = tokenizer["model"];
  const json pipeline = pipeline_of(tokenizer, settings);
  normalizer_ = Normalizer::from_json(pipeline["normalizer"], where + ": normalizer");
  const json& pre_tokenizer = pipeline["pre_tokenizer"];
  if (!cuts_nothing(pre_tokenizer, normalizer_))
    metaspace_ = Metaspace::from_json(pre_tokenizer, where + ": pre_tokenizer");
  decoder_ = TokenTexts::from_json(pipeline["decoder"], where + ": decoder");
  if (type_of_model(model) == "Unigram") {
    model_ = std::make_unique<Unigram>(model, where + ": model");
  } else {
    model_ = std::make_unique<CharacterBpe>(model, where + ": model");
  }
  take_added_tokens(tokenizer, where, settings);
  take_bos(tokenizer, where, settings, !model_file.empty());
  take_hash(tokenizer, settings, model_file);
}

void PieceTokenizer::take_added_tokens(const json& tokenizer, const std::string& where,
                                       const TokenizerSettings& settings) {
  const auto own_id = [&](const std::string& content) { return model_->id_of(content); };
  listed_ = read_listed_tokens(tokenizer, where, own_id);
  AddedVocabulary added(model_->size(), own_id);
  say_once(settings.folder, settings.sources.merge(listed_, added));
  texts_ = model_->texts();
  const std::vector<AddedToken> tokens = added.tokens();
  if (!tokens.empty() && static_cast<size_t>(tokens.back().id) >= texts_.size())
    texts_.resize(static_cast<size_t>(tokens.back().id) + 1);
  special_.resize(texts_.size());
  for (AddedToken token : tokens) {
    added_ids_.emplace(token.content, token.id);
    token.normalized = token.normalized && !settings.llama_class;
    const std::string content = token.content;
    // The reference knows such a token by its normalised text from here on, in decoded text too.
    if (token.normalized) token.content = std::string(normalizer_.apply(content).text());
    special_[static_cast<size_t>(token.id)] = token.special && token.content == content;
    texts_[static_cast<size_t>(token.id)] = token.content;
    (token.normalized ? normalized_tokens_ : raw_tokens_).add(token);
  }
  bytes_of_id_.reserve(texts_.size());
  for (const std::string& text : texts_)
    bytes_of_id_.push_back(text.empty() ? text : decoder_.bytes_of(text, false));
}

void PieceTokenizer::take_bos(const json& tokenizer, const std::string& where,
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
  // tokenizer.model's tokenizer adds one unless it is told otherwise.
  const bool by_itself = leading.has_value() || (has_model_file && processor.is_null());
  adds_bos_ = bos_.has_value() && settings.add_bos.value_or(by_itself);
}

bool PieceTokenizer::has_tokens_of(const Tokenizer& other) const {
  if (other.vocab_size() != vocab_size() || other.bos() != bos_ || other.adds_bos() != adds_bos_)
    return false;
  for (int64_t id = 0; id < vocab_size(); ++id)
    if (other.token_bytes(id, false) != token_bytes(id, false)) return false;
  return true;
}

// A folder that holds tokenizer.model too was known by that file before this one was read: heads and stores
// of then are still its own.
void PieceTokenizer::take_hash(const json& tokenizer, const TokenizerSettings& settings,
                               const std::filesystem::path& model_file) {
  if (!model_file.empty()) {
    std::unique_ptr<Tokenizer> original;
    try {
      original = load_sentencepiece(model_file, settings, listed_);
    } catch (const InputError&) {  // transformers does not look at it either
    }
    if (original && has_tokens_of(*original)) {
      hash_ = original->hash();
      return;
    }
    say_once(settings.folder, {"tokenizer.json and tokenizer.model hold different tokens; the former is "
                               "taken, as transformers does"});
  }
  uint64_t hash = fnv1a(tokenizer["model"].dump() + "\n");
  const json pipeline = pipeline_of(tokenizer, settings);
  for (const char* part : {"normalizer", "pre_tokenizer", "decoder"})
    hash = fnv1a(pipeline[part].dump() + "\n", hash);
  AddedVocabulary added(model_->size(), [&](const std::string& content) { return model_->id_of(content); });
  settings.sources.merge(listed_, added);
  hash_ = hex(fnv1a(std::to_string(bos_.value_or(-1)) + (adds_bos_ ? "+" : "-"), hash_with(hash, {}, added)));
}

Encoding PieceTokenizer::encode_with_spans(std::string_view text, const EncodeOptions& options) const {
  return encode_parts(
      text, options.parse_special, options.add_bos && adds_bos_ ? bos_ : std::nullopt, 1, raw_tokens_,
      [&](std::string_view segment, size_t begin, const MappedText& repaired, Encoding& encoding) {
        encode_segment(segment, {repaired, begin, options.parse_special}, encoding);
      });
}

void PieceTokenizer::encode_segment(std::string_view text, const Segment& segment, Encoding& encoding) const {
  const MappedText normalized = normalizer_.apply(text);
  for (const AddedTokens::Part& part : normalized_tokens_.split(normalized.text(), segment.parse_special)) {
    if (part.token != nullptr) {
      const auto [from, to] = normalized.source_range(part.begin, part.end);
      encoding.ids.push_back(part.token->id);
      encoding.spans.push_back(segment.repaired.source_range(segment.offset + from, segment.offset + to));
    } else {
      encode_plain(normalized.text().substr(part.begin, part.end - part.begin), normalized, part.begin,
                   segment, encoding);
    }
  }
}

void PieceTokenizer::encode_plain(std::string_view text, const MappedText& normalized, size_t begin,
                                  const Segment& segment, Encoding& encoding) const {
  const size_t offset = segment.offset + normalized.source_range(begin, begin).first;
  const MappedText marked = metaspace_.apply(text, offset == 0);
  std::vector<BpeSymbol> tokens;
  for (const auto& [from, to] : metaspace_.split(marked.text())) {
    const std::string_view piece = marked.text().substr(from, to - from);
    model_->encode(piece, tokens);
    for (const BpeSymbol& token : tokens) {
      // A byte token came from its whole character.
      size_t first = token.begin, last = token.end;
      while (first > 0 && continues_character(piece[first])) --first;
      while (last < piece.size() && continues_character(piece[last])) ++last;
      const auto [left, right] = marked.source_range(from + first, from + last);
      const auto [source_left, source_right] = normalized.source_range(begin + left, begin + right);
      encoding.ids.push_back(token.id);
      encoding.spans.push_back(
          segment.repaired.source_range(segment.offset + source_left, segment.offset + source_right));
    }
  }
}

std::string PieceTokenizer::token_bytes(int64_t id, bool first) const {
  if (id < 0 || id >= vocab_size()) return {};
  const auto index = static_cast<size_t>(id);
  return first && !texts_[index].empty() ? decoder_.bytes_of(texts_[index], true) : bytes_of_id_[index];
}

std::optional<int64_t> PieceTokenizer::token_id(std::string_view token) const {
  const std::string key(token);
  if (const auto added = added_ids_.find(key); added != added_ids_.end()) return added->second;
  if (const auto own = model_->id_of(key)) return own;
  std::string marked;
  for (char c : token) c == ' ' ? marked += "\xE2\x96\x81" : marked += c;
  return model_->id_of(marked);
}

}  // namespace

bool describes_pieces(const json& tokenizer) {
  if (!tokenizer.is_object() || !tokenizer.contains("model") || !tokenizer["model"].is_object()) return false;
  for (const char* part : {"pre_tokenizer", "decoder"})
    if (tokenizer.value(part, json()).dump().find("\"ByteLevel\"") != std::string::npos) return false;
  const json type = type_of_model(tokenizer["model"]);
  return type == "BPE" || type == "Unigram";
}

std::unique_ptr<Tokenizer> load_pieces(const json& tokenizer, const std::string& where,
                                       const TokenizerSettings& settings,
                                       const std::filesystem::path& model_file) {
  return std::make_unique<PieceTokenizer>(tokenizer, where, settings, model_file);
}

}  // namespace clover::data
