#pragma once

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <memory>

#include "data/tokenizer/files/tokenizer_settings.h"
#include "data/tokenizer/tokenizer.h"

namespace clover::data {

/// Whether a parsed `tokenizer.json` is of SentencePiece kind: byte-pair encoding over characters or Unigram,
/// no byte-level alphabet.
bool describes_pieces(const nlohmann::json& tokenizer);

/// The tokenizer of such a `tokenizer.json`, equal to the `tokenizers` library in ids and text. `model_file`:
/// of SentencePiece, beside it, or empty.  InputError (beginning with `where`) for anything malformed or not
/// supported.
std::unique_ptr<Tokenizer> load_pieces(const nlohmann::json& tokenizer, const std::string& where,
                                       const TokenizerSettings& settings,
                                       const std::filesystem::path& model_file);

}  // namespace clover::data
