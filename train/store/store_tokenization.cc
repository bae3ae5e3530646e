#include "train/store/store_tokenization.h"

#include <filesystem>

#include "data/chat/template_source.h"
#include "data/files/error.h"
#include "data/files/hash.h"

namespace clover::train {
namespace {

using nlohmann::json;

/// The value of `key` in the object `part` of store.json; null if it is not recorded.
json recorded_value(const StoreUse& use, const char* part, const char* key) {
  const json& metadata = use.store.metadata();
  const auto found = metadata.find(part);
  return found != metadata.end() && found->is_object() ? found->value(key, json()) : json();
}

/// The same as a string; "" if it is not a string.
std::string recorded_text(const StoreUse& use, const char* part, const char* key) {
  const json value = recorded_value(use, part, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

/// InputError: `part` of the store differs from that of the target; `how`: the difference.
[[noreturn]] void refuse(const StoreUse& use, const std::string& part, const std::string& how) {
  throw data::InputError(use.store_folder + " was prepared with another " + part + " than " +
                         use.target_folder + " has now (" + how +
                         "): prepare the data again, or put back the one it was prepared with.");
}

/// What decides the output of the chat template in a target's folder: the hash of its text, and the special
/// tokens that it names.
struct FolderTemplate {
  std::string hash;
  json special_tokens = json::object();  // {role: text}, such as {"eos_token": "</s>"}
};

FolderTemplate read_folder_template(const std::filesystem::path& folder) {
  const data::TemplateSource source = data::read_template_source(folder);
  FolderTemplate result{data::hex(data::fnv1a(source.recorded))};
  for (const auto& [role, text] : source.special_tokens.items())
    if (source.recorded.find(role) != std::string::npos) result.special_tokens[role] = text;
  return result;
}

/// Whether --template chooses the template in the target's folder, and not a built-in format.
bool is_folder_template(const std::string& template_option) {
  return template_option.empty() || template_option == "jinja";
}

/// The hash of the template `name` for the target's folder.
std::string hash_of_template(const StoreUse& use, const std::string& name) {
  try {
    return data::ChatTemplate::load(use.target_folder, name).hash();
  } catch (const data::InputError& error) {
    refuse(use, "chat template", error.what());
  }
}

void check_template(const StoreUse& use) {
  if (const std::string recorded_hash = recorded_text(use, "chat_template", "own"); !recorded_hash.empty()) {
    const FolderTemplate current = read_folder_template(use.target_folder);
    if (current.hash != recorded_hash) refuse(use, "chat template", recorded_hash + ", not " + current.hash);
    const json tokens = recorded_value(use, "chat_template", "special_tokens");
    if (tokens.is_object() && tokens != current.special_tokens)
      refuse(use, "special token in its chat template",
             tokens.dump().substr(0, 200) + ", not " + current.special_tokens.dump().substr(0, 200));
    return;
  }
  const std::string hash = recorded_text(use, "chat_template", "hash");
  if (hash.empty()) return;
  if (const std::string current = hash_of_template(use, recorded_text(use, "chat_template", "name"));
      hash != current)
    refuse(use, "chat template", hash + ", not " + current);
}

}  // namespace

json describe_tokenization(const std::string& target_folder, const data::Tokenizer& tokenizer,
                           const data::ChatTemplate& chat_template, const std::string& template_option) {
  json template_json = {{"name", chat_template.name()}, {"hash", chat_template.hash()}};
  if (is_folder_template(template_option)) {
    const FolderTemplate folder_template = read_folder_template(target_folder);
    template_json["own"] = folder_template.hash;
    template_json["special_tokens"] = folder_template.special_tokens;
  }
  return {{"tokenizer", {{"hash", tokenizer.hash()}}}, {"chat_template", std::move(template_json)}};
}

void check_same_tokenizer(const StoreUse& use, const data::Tokenizer& tokenizer) {
  const std::string hash = recorded_text(use, "tokenizer", "hash");
  if (!hash.empty() && hash != tokenizer.hash()) refuse(use, "tokenizer", hash + ", not " + tokenizer.hash());
}

void check_same_tokenizer_and_template(const StoreUse& use, const data::Tokenizer& tokenizer) {
  check_same_tokenizer(use, tokenizer);
  check_template(use);
}

std::unique_ptr<data::Tokenizer> check_same_tokenizer(const StoreUse& use) {
  if (recorded_text(use, "tokenizer", "hash").empty()) return nullptr;
  std::unique_ptr<data::Tokenizer> tokenizer;
  try {
    tokenizer = data::Tokenizer::load(use.target_folder);
  } catch (const data::InputError& error) {
    refuse(use, "tokenizer", error.what());
  }
  check_same_tokenizer(use, *tokenizer);
  return tokenizer;
}

std::unique_ptr<data::Tokenizer> check_same_tokenizer_and_template(const StoreUse& use) {
  auto tokenizer = check_same_tokenizer(use);
  check_template(use);
  return tokenizer;
}

}  // namespace clover::train
