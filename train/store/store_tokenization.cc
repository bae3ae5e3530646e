#include "train/store/store_tokenization.h"

#include <filesystem>

#include "data/chat/template_source.h"
#include "data/files/error.h"
#include "data/files/hash.h"

namespace clover::train {
namespace {

using nlohmann::json;

/// What store.json records as `key` of the object `part`; null when there is nothing.
json recorded(const StoreUse& use, const char* part, const char* key) {
  const json& about = use.store.about();
  const auto found = about.find(part);
  return found != about.end() && found->is_object() ? found->value(key, json()) : json();
}

/// That as a text; "" where it is none.
std::string recorded_text(const StoreUse& use, const char* part, const char* key) {
  const json value = recorded(use, part, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

[[noreturn]] void refuse(const StoreUse& use, const std::string& part, const std::string& how) {
  throw data::InputError(use.store_folder + " was prepared with another " + part + " than " +
                         use.target_folder + " has now (" + how +
                         "): prepare the data again, or put back the one it was prepared with.");
}

/// What decides the output of a folder's own template: the hash of its text, and the special tokens that it
/// names.
struct OwnTemplate {
  std::string hash;
  json special_tokens = json::object();
};

OwnTemplate read_own_template(const std::filesystem::path& folder) {
  const data::TemplateSource source = data::read_template_source(folder);
  OwnTemplate found{data::hex(data::fnv1a(source.recorded))};
  for (const auto& [role, text] : source.special_tokens.items())
    if (source.recorded.find(role) != std::string::npos) found.special_tokens[role] = text;
  return found;
}

/// Whether the template is the folder's own, and not a format named on the command line.
bool is_folders_own(const std::string& given) {
  return given.empty() || given == "jinja";
}

std::string hash_of_template(const StoreUse& use, const std::string& name) {
  try {
    return data::ChatTemplate::load(use.target_folder, name).hash();
  } catch (const data::InputError& error) {
    refuse(use, "chat template", error.what());
  }
}

void check_template(const StoreUse& use) {
  if (const std::string own = recorded_text(use, "chat_template", "own"); !own.empty()) {
    const OwnTemplate now = read_own_template(use.target_folder);
    if (now.hash != own) refuse(use, "chat template", own + ", not " + now.hash);
    const json tokens = recorded(use, "chat_template", "special_tokens");
    if (tokens.is_object() && tokens != now.special_tokens)
      refuse(use, "special token in its chat template",
             tokens.dump().substr(0, 200) + ", not " + now.special_tokens.dump().substr(0, 200));
    return;
  }
  const std::string hash = recorded_text(use, "chat_template", "hash");
  if (hash.empty()) return;
  if (const std::string now = hash_of_template(use, recorded_text(use, "chat_template", "name")); hash != now)
    refuse(use, "chat template", hash + ", not " + now);
}

}  // namespace

json describe_tokenization(const std::string& target_folder, const data::Tokenizer& tokenizer,
                           const data::ChatTemplate& chat_template, const std::string& given) {
  json form = {{"name", chat_template.name()}, {"hash", chat_template.hash()}};
  if (is_folders_own(given)) {
    const OwnTemplate own = read_own_template(target_folder);
    form["own"] = own.hash;
    form["special_tokens"] = own.special_tokens;
  }
  return {{"tokenizer", {{"hash", tokenizer.hash()}}}, {"chat_template", std::move(form)}};
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
