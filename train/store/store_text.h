#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "data/chat/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "train/store/store_check.h"

namespace clover::train {

/// How a store's text became tokens, for store.json: "tokenizer" and "chat_template", which heads made from
/// it carry along.  `given`: the template's name on the command line, or "".
nlohmann::json text_form(const std::string& target_folder, const data::Tokenizer& tokenizer,
                         const data::ChatTemplate& chat_template, const std::string& given);

/// InputError when the target's tokenizer is another than the store's text was cut with: nobody would take
/// the heads, which carry the store's.  Without a tokenizer the folder's is read where the store records one,
/// and handed back.
void check_same_tokenizer(const StoreUse& use, const data::Tokenizer& tokenizer);
std::unique_ptr<data::Tokenizer> check_same_tokenizer(const StoreUse& use);

/// As that, and when the target's chat template is another than the store was prepared with: its text or a
/// special token that it names, not where these are written.  What a store does not record is not looked at.
std::unique_ptr<data::Tokenizer> check_same_text_form(const StoreUse& use);
void check_same_text_form(const StoreUse& use, const data::Tokenizer& tokenizer);

}  // namespace clover::train
