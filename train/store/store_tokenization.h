#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "data/chat/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "train/store/store_check.h"

namespace clover::train {

/// How a store's text is tokenised: the objects "tokenizer" and "chat_template" for store.json, which heads
/// trained on the store record, too.  `template_option`: the value of --template, or "".
nlohmann::json describe_tokenization(const std::string& target_folder, const data::Tokenizer& tokenizer,
                                     const data::ChatTemplate& chat_template,
                                     const std::string& template_option);

/// InputError when the target's tokenizer is not the one that the store records.  The second form loads the
/// tokenizer from the target's folder and returns it, or returns null if the store records none.
void check_same_tokenizer(const StoreUse& use, const data::Tokenizer& tokenizer);
std::unique_ptr<data::Tokenizer> check_same_tokenizer(const StoreUse& use);

/// The same check, and InputError when the target's chat template differs from the one that the store
/// records: in its text, or in a special token that it names.  What the store does not record is not checked.
std::unique_ptr<data::Tokenizer> check_same_tokenizer_and_template(const StoreUse& use);
void check_same_tokenizer_and_template(const StoreUse& use, const data::Tokenizer& tokenizer);

}  // namespace clover::train
