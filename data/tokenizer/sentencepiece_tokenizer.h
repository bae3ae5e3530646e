#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "data/tokenizer/files/tokenizer_settings.h"
#include "data/tokenizer/tokenizer.h"

namespace clover::data {

/// The tokenizer of a SentencePiece `tokenizer.model`.  Added and control tokens are found first; what lies
/// between them goes through the library, and the space it puts before a text is put before the first part
/// only (before every part when tokenizer_config.json says `legacy`).  `listed`: added tokens of a
/// tokenizer.json beside it.  InputError when the file is not a SentencePiece model.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& file,
                                              const TokenizerSettings& settings,
                                              const std::vector<AddedToken>& listed);

}  // namespace clover::data
