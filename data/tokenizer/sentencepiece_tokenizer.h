#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "data/tokenizer/files/tokenizer_settings.h"
#include "data/tokenizer/tokenizer.h"

namespace clover::data {

/// The tokenizer of a `tokenizer.model`, run by the SentencePiece library.  The text is split at added and
/// control tokens, and the library encodes the segments between them.  The library's dummy prefix, a space,
/// is put before the first segment only, or before each segment when tokenizer_config.json says `legacy`.
/// `listed`: the added tokens of a tokenizer.json in the same folder.  InputError when the file is not a
/// SentencePiece model.
std::unique_ptr<Tokenizer> load_sentencepiece_model(const std::filesystem::path& file,
                                                    const TokenizerSettings& settings,
                                                    const std::vector<AddedToken>& listed);

}  // namespace clover::data
