#include "data/tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <unordered_map>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/hash.h"
#include "data/text/metaspace.h"
#include "data/text/utf8.h"
#include "data/tokenizer/encode_segments.h"

namespace clover::data {
namespace {

using sentencepiece::SentencePieceProcessor;

// A serialised ModelProto with normalizer_spec { add_dummy_prefix: false }.  When it is appended to a
// serialised model, it overrides that field.
constexpr std::string_view no_dummy_prefix_spec("\x1A\x02\x18\x00", 4);

std::unique_ptr<SentencePieceProcessor> parse_model(std::string_view bytes,
                                                    const std::filesystem::path& file) {
  auto processor = std::make_unique<SentencePieceProcessor>();
  const auto status = processor->LoadFromSerializedProto({bytes.data(), bytes.size()});
  if (!status.ok()) {
    throw InputError(file.string() + ": expected a SentencePiece model, found something else (" +
                     status.ToString() + ")");
  }
  return processor;
}

std::string with_spaces(std::string_view piece) {
  std::string bytes;
  for (size_t i = 0; i < piece.size();) {
    if (piece.substr(i).starts_with(space_mark)) {
      bytes += ' ';
      i += space_mark.size();
    } else {
      bytes += piece[i++];
    }
  }
  return bytes;
}

std::string piece_bytes(const SentencePieceProcessor& model, int id) {
  const std::string& piece = model.IdToPiece(id);
  if (model.IsByte(id) && piece.size() == 6) {  // "<0x0A>"
    uint8_t byte = 0;
    std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
    return std::string(1, static_cast<char>(byte));
  }
  return with_spaces(piece);
}

AddedToken control_token(const SentencePieceProcessor& model, int id) {
  AddedToken token;
  token.id = id;
  token.content = model.IdToPiece(id);
  token.special = true;
  return token;
}

// The added tokens that enter the hash, in this order and with these flags.  Heads and stores record the
// hash, so neither may change.
std::vector<AddedToken> hashed_tokens(const AddedTokenSources& sources) {
  std::map<std::string, AddedToken> by_id, by_content;
  for (const auto& [id, token] : sources.by_id)
    (sources.only_in_added_tokens_json.contains(id) ? by_content[token.content] : by_id[std::to_string(id)]) =
        token;
  std::vector<AddedToken> tokens;
  for (const auto& [id, token] : by_id) tokens.push_back(token);
  for (auto& [content, token] : by_content) {
    const auto has_same_id_or_text = [&](const AddedToken& other) {
      return other.id == token.id || other.content == content;
    };
    if (std::any_of(tokens.begin(), tokens.end(), has_same_id_or_text)) continue;
    token.special = false;
    tokens.push_back(token);
  }
  return tokens;
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::filesystem::path& file, const TokenizerSettings& settings,
                         const std::vector<AddedToken>& listed);

  Encoding encode_with_spans(std::string_view text, const EncodeOptions& options) const override;
  std::string token_bytes(int64_t id, bool first) const override;
  bool is_special(int64_t id) const override {
    return id >= 0 && id < vocab_size() && special_[static_cast<size_t>(id)];
  }
  std::optional<int64_t> token_id(std::string_view token) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(bytes_of_id_.size()); }
  std::optional<int64_t> bos() const override { return bos_; }
  bool adds_bos() const override { return adds_bos_; }
  std::string hash() const override { return hex(hash_); }

 private:
  void add_added_tokens(const TokenizerSettings& settings, const std::vector<AddedToken>& listed);
  void set_hash(const AddedTokenSources& sources, const AddedVocabulary& added);
  void encode_segment(const SentencePieceProcessor& model, std::string_view segment, size_t offset,
                      const AlignedText& repaired, Encoding& encoding) const;

  std::unique_ptr<SentencePieceProcessor> model_;  // for the first segment of a text
  std::unique_ptr<SentencePieceProcessor>
      continuation_model_;     // for the others: no dummy prefix, unless legacy
  bool dummy_prefix_ = false;  // model_ puts a space before a text
  AddedTokenTrie added_tokens_;
  std::unordered_map<std::string, int64_t> ids_;  // of pieces and added tokens, by text
  std::vector<std::string> bytes_of_id_;
  std::vector<bool> special_;
  std::optional<int64_t> bos_;
  bool adds_bos_ = false;
  uint64_t hash_ = 0;
};

SentencePieceTokenizer::SentencePieceTokenizer(const std::filesystem::path& file,
                                               const TokenizerSettings& settings,
                                               const std::vector<AddedToken>& listed) {
  const std::string serialized = read_file(file);
  const std::string without_prefix = serialized + std::string(no_dummy_prefix_spec);
  model_ = parse_model(settings.prefix_space ? serialized : without_prefix, file);
  continuation_model_ =
      parse_model(settings.legacy && settings.prefix_space ? serialized : without_prefix, file);
  const auto encoded_a = model_->EncodeAsImmutableProto("a");
  dummy_prefix_ = encoded_a.pieces_size() > 0 && encoded_a.pieces(0).piece().starts_with(space_mark);

  const int pieces = model_->GetPieceSize();
  bytes_of_id_.resize(static_cast<size_t>(pieces));
  for (int id = 0; id < pieces; ++id) {
    bytes_of_id_[static_cast<size_t>(id)] = piece_bytes(*model_, id);
    ids_.emplace(model_->IdToPiece(id), id);
  }
  hash_ = fnv1a(serialized);
  add_added_tokens(settings, listed);
  if (settings.bos_token()) bos_ = token_id(*settings.bos_token());
  if (!bos_ && model_->bos_id() >= 0) bos_ = model_->bos_id();
  adds_bos_ = bos_.has_value() && settings.add_bos.value_or(true);
  hash_ = fnv1a(std::to_string(bos_.value_or(-1)) + (adds_bos_ ? "+" : "-") + (settings.legacy ? "l" : "") +
                    (settings.prefix_space ? "" : "n"),
                hash_);
}

void SentencePieceTokenizer::add_added_tokens(const TokenizerSettings& settings,
                                              const std::vector<AddedToken>& listed) {
  const int pieces = model_->GetPieceSize();
  // An added token may have the id of a piece and replaces its text; models reserve pieces for that.
  std::set<int64_t> renamed;
  for (const auto& [id, token] : settings.sources.by_id) {
    if (id >= pieces || ids_.contains(token.content)) continue;
    ids_[token.content] = id;
    renamed.insert(id);
  }
  AddedVocabulary added(pieces, [&](const std::string& content) -> std::optional<int64_t> {
    const auto id = ids_.find(content);
    return id == ids_.end() ? std::nullopt : std::optional<int64_t>(id->second);
  });
  // As in transformers, additional_special_tokens are not added: the model's control pieces take their place.
  AddedTokenSources sources = settings.sources;
  sources.additional_special_tokens.clear();
  warn_once(settings.folder, sources.add_all_to(added, listed));
  set_hash(settings.sources, added);
  for (int id = 0; id < pieces; ++id) {
    if (!model_->IsControl(id) && !model_->IsUnknown(id)) continue;
    const AddedToken token = control_token(*model_, id);
    if (added.find(token.content) == nullptr && !renamed.contains(id)) added.add(token);
  }

  const auto tokens = added.tokens();
  if (!tokens.empty() && tokens.back().id >= pieces)
    bytes_of_id_.resize(static_cast<size_t>(tokens.back().id) + 1);
  special_.resize(bytes_of_id_.size());
  for (const AddedToken& token : tokens) {
    bytes_of_id_[static_cast<size_t>(token.id)] = with_spaces(token.content);
    special_[static_cast<size_t>(token.id)] = token.special;
    ids_[token.content] = token.id;
    added_tokens_.add(token);
  }
}

// Adds to the hash the tokens of `hashed_tokens`, the control and unknown pieces that have other texts, and
// the tokens of `added` that differ from these.
void SentencePieceTokenizer::set_hash(const AddedTokenSources& sources, const AddedVocabulary& added) {
  std::vector<AddedToken> covered = hashed_tokens(sources);
  const size_t stated_count = covered.size();
  for (int id = 0; id < model_->GetPieceSize(); ++id) {
    if (!model_->IsControl(id) && !model_->IsUnknown(id)) continue;
    AddedToken token = control_token(*model_, id);
    const auto same_text = [&](const AddedToken& other) { return other.content == token.content; };
    if (std::none_of(covered.begin(), covered.begin() + static_cast<ptrdiff_t>(stated_count), same_text))
      covered.push_back(std::move(token));
  }
  for (const AddedToken& token : covered) {
    const int flags = token.special + 2 * token.single_word + 4 * token.lstrip + 8 * token.rstrip;
    hash_ =
        fnv1a(token.content + "\n" + std::to_string(token.id) + " " + std::to_string(flags) + "\n", hash_);
  }
  hash_ = extend_hash(hash_, covered, added);
}

Encoding SentencePieceTokenizer::encode_with_spans(std::string_view text,
                                                   const EncodeOptions& options) const {
  return encode_segments(
      text, options.parse_special, options.add_bos && adds_bos_ ? bos_ : std::nullopt, /*max_gib=*/2,
      added_tokens_,
      [&](std::string_view segment, size_t begin, const AlignedText& repaired, Encoding& encoding) {
        encode_segment(begin == 0 ? *model_ : *continuation_model_, segment, begin, repaired, encoding);
      });
}

void SentencePieceTokenizer::encode_segment(const SentencePieceProcessor& model, std::string_view segment,
                                            size_t offset, const AlignedText& repaired,
                                            Encoding& encoding) const {
  const auto encoded_segment =
      model.EncodeAsImmutableProto({segment.data(), segment.size()});  // owns the pieces
  const size_t first = encoding.ids.size();
  for (const auto& piece : encoded_segment.pieces()) {
    encoding.ids.push_back(piece.id());
    encoding.spans.push_back(repaired.source_range(offset + piece.begin(), offset + piece.end()));
  }
  // The library gives all bytes of a character to the last of its byte tokens; here each of them spans the
  // character.
  for (size_t i = encoding.ids.size(); i-- > first + 1;) {
    auto& previous = encoding.spans[i - 1];
    const bool both_bytes = model.IsByte(static_cast<int>(encoding.ids[i - 1])) &&
                            model.IsByte(static_cast<int>(encoding.ids[i]));
    if (both_bytes && previous.first == previous.second) previous = encoding.spans[i];
  }
}

std::string SentencePieceTokenizer::token_bytes(int64_t id, bool first) const {
  if (id < 0 || id >= vocab_size()) return {};
  const std::string& bytes = bytes_of_id_[static_cast<size_t>(id)];
  const bool drops_space = first && dummy_prefix_ && bytes.starts_with(' ');
  return drops_space ? bytes.substr(1) : bytes;
}

std::optional<int64_t> SentencePieceTokenizer::token_id(std::string_view token) const {
  std::string marked;
  for (char c : token) c == ' ' ? marked += space_mark : marked += c;
  if (const auto entry = ids_.find(std::string(token)); entry != ids_.end()) return entry->second;
  if (const auto entry = ids_.find(marked); entry != ids_.end()) return entry->second;
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece_model(const std::filesystem::path& file,
                                                    const TokenizerSettings& settings,
                                                    const std::vector<AddedToken>& listed) {
  return std::make_unique<SentencePieceTokenizer>(file, settings, listed);
}

}  // namespace clover::data
