#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/tokenizer/files/added_tokens.h"
#include "data/tokenizer/files/added_vocabulary.h"

namespace clover::data {

/// What `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json` say about added tokens,
/// put together as transformers 5 does: where the config has an `added_tokens_decoder`, it decides and the
/// other two files are not asked, but for tokens of `added_tokens.json` that it lacks.
struct AddedTokenSources {
  std::map<int64_t, AddedToken> numbered;   // stated with an id
  std::set<int64_t> of_file;                // those of them that only added_tokens.json states
  bool numbered_by_config = false;          // there is an added_tokens_decoder
  std::map<std::string, AddedToken> roles;  // "bos_token" and so on
  std::vector<AddedToken> named;            // the same in the order in which ids are given
  std::vector<AddedToken> extra;            // extra_special_tokens given as a list
  std::vector<AddedToken> additional;       // additional_special_tokens where there is no such list
  std::vector<AddedToken> set_aside;        // of added_tokens.json, what the decoder knows otherwise
  std::vector<std::string> disagreements;   // of the two files that name special tokens

  /// Files that are absent say nothing.  InputError naming file and field.
  static AddedTokenSources load(const std::filesystem::path& folder);

  /// Nothing when no file names one.
  std::optional<std::string> text_of(const char* role) const;

  /// Adds all tokens to `vocabulary`: those `listed` by tokenizer.json (with the ids it states), those with
  /// an id in the other files, then special tokens known by their text only, which are appended where the
  /// vocabulary lacks them.  Returns what the files say differently, a sentence for each kind.
  std::vector<std::string> merge(const std::vector<AddedToken>& listed, AddedVocabulary& vocabulary) const;
};

/// Says each sentence once in the life of the process, on a line of stderr.
void say_once(const std::string& where, const std::vector<std::string>& sentences);

}  // namespace clover::data
