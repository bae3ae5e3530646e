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

/// The added tokens that `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json` state,
/// combined as in transformers 5.  Where tokenizer_config.json has an `added_tokens_decoder` (id to token),
/// the other two files are not used, except for tokens of `added_tokens.json` that the decoder lacks.
struct AddedTokenSources {
  std::map<int64_t, AddedToken> by_id;           // the tokens for which a file states an id
  std::set<int64_t> only_in_added_tokens_json;   // those of these ids that only added_tokens.json states
  bool has_added_tokens_decoder = false;         // tokenizer_config.json has one
  std::map<std::string, AddedToken> roles;       // role ("bos_token") to token
  std::vector<AddedToken> special_in_order;      // the tokens of `roles`, in the order in which they get ids
  std::vector<AddedToken> extra_special_tokens;  // of the field of this name, if it is a list
  std::vector<AddedToken> additional_special_tokens;  // used if extra_special_tokens is no list
  /// Tokens of added_tokens.json whose text or id the decoder states, too.
  std::vector<AddedToken> conflicting_tokens;
  /// Warnings where tokenizer_config.json and special_tokens_map.json differ.
  std::vector<std::string> disagreements;

  /// Reads the files that exist.  InputError naming file and field.
  static AddedTokenSources load(const std::filesystem::path& folder);

  /// The text of the token with this role ("bos_token"), if a file names one.
  std::optional<std::string> text_of(const char* role) const;

  /// Adds all tokens to `vocabulary`: first `listed`, the added tokens of tokenizer.json, then tokens for
  /// which another file states an id, then special tokens without a stated id, which get new ids if the
  /// vocabulary lacks them.  Returns warnings about disagreements between the files, one for each kind.
  std::vector<std::string> add_all_to(AddedVocabulary& vocabulary,
                                      const std::vector<AddedToken>& listed) const;
};

/// Prints each sentence on stderr, once per process.
void warn_once(const std::string& where, const std::vector<std::string>& sentences);

}  // namespace clover::data
