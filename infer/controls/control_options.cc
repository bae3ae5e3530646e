#include "data/files/error.h"
#include "infer/controls/control_fields.h"
#include "infer/program/command_line.h"

namespace clover::infer {
namespace {

using Ids = std::vector<int64_t>;

/// Reads "ID=X" texts as the field logit_bias.
void read_biases(const std::vector<std::string>& pairs, ControlFields& controls) {
  nlohmann::json biases = nlohmann::json::object();
  for (const std::string& pair : pairs) {
    const size_t equals = pair.find('=');
    const auto bias = equals == pair.npos ? nlohmann::json()
                                          : nlohmann::json::parse(pair.substr(equals + 1), nullptr, false);
    if (!bias.is_number())
      throw CLI::ValidationError("--logit-bias", "expected ID=NUMBER, found \"" + pair + "\"");
    biases[pair.substr(0, equals)] = bias;
  }
  try {
    read_controls({{"logit_bias", biases}}, controls);
  } catch (const data::InputError& error) {
    throw CLI::ValidationError("--logit-bias", error.what());
  }
}

}  // namespace

void add_control_options(CLI::App& app, ControlFields& controls) {
  const std::string group = "What answers may not say";
  app.add_option(
         "--repetition-penalty", controls.repetition_penalty,
         "Makes tokens that stand in prompt or answer less likely, above 1 (default: the model's own, "
         "or 1)")
      ->type_name("X")
      ->group(group);
  app.add_option("--presence-penalty", controls.presence_penalty,
                 "Taken from the logits of tokens that stand in the answer; -2 to 2")
      ->type_name("X")
      ->group(group);
  app.add_option("--frequency-penalty", controls.frequency_penalty, ".. for each time they stand there")
      ->type_name("X")
      ->group(group);
  app.add_option("--no-repeat-ngram-size", controls.no_repeat_ngram,
                 "No run of N tokens comes twice, those of the prompt included; 0: any may")
      ->type_name("N")
      ->check(whole_number<int64_t>())
      ->group(group);
  app.add_option("--min-tokens", controls.min_tokens, "No end token before so many tokens")
      ->type_name("N")
      ->check(whole_number<int64_t>())
      ->group(group);
  app.add_option_function<std::vector<std::string>>(
         "--bad-words", [&controls](const auto& words) { controls.bad_words = words; },
         "Texts that no answer holds: their tokens, with and without a space before them")
      ->type_name("TEXT")
      ->group(group);
  app.add_option_function<Ids>(
         "--suppress-tokens", [&controls](const auto& ids) { controls.suppressed = ids; },
         "Tokens that are never chosen")
      ->type_name("ID")
      ->check(whole_number<int64_t>())
      ->group(group);
  app.add_option_function<Ids>(
         "--begin-suppress-tokens", [&controls](const auto& ids) { controls.suppressed_first = ids; },
         ".. as the first of an answer")
      ->type_name("ID")
      ->check(whole_number<int64_t>())
      ->group(group);
  app.add_option_function<std::vector<std::string>>(
         "--logit-bias", [&controls](const auto& pairs) { read_biases(pairs, controls); },
         "Added to the logit of a token, -100 to 100")
      ->type_name("ID=X")
      ->group(group);
}

}  // namespace clover::infer
