#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <memory>

#include "data/tokenizer/files/tokenizer_settings.h"
#include "data/tokenizer/tokenizer.h"

namespace clover::data {

/// Whether a parsed `tokenizer.json` is of SentencePiece kind: BPE over characters or Unigram, without a
/// byte-level alphabet.
bool is_sentencepiece_json(const nlohmann::json& tokenizer);

/// The tokenizer of such a `tokenizer.json`.  It gives the same ids and texts as the `tokenizers` library.
/// `model_file`: the folder's tokenizer.model, empty if it has none.  InputError (beginning with `where`) for
/// anything malformed or not supported.
std::unique_ptr<Tokenizer> load_sentencepiece_json(const nlohmann::json& tokenizer, const std::string& where,
                                                   const TokenizerSettings& settings,
                                                   const std::filesystem::path& model_file);

}  // namespace clover::data
