#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace clover::data {

struct Message {
  std::string role;  // system | user | assistant; others where the folder's own template shows them
  std::string content;
  /// What else stands in it, for the folder's own template: reasoning_content, tool_calls, ..; null: nothing.
  std::shared_ptr<const nlohmann::ordered_json> fields = nullptr;
};

/// What the folder's own template is given beside the messages, by name: tools, documents, enable_thinking,
/// ..; null: nothing.
using TemplateArguments = std::shared_ptr<const nlohmann::ordered_json>;

class JinjaChat;

/// A conversation as the model reads it, and the byte ranges [begin, end) an assistant wrote, its end token
/// included.
struct RenderedChat {
  std::string text;
  std::vector<std::pair<size_t, size_t>> assistant_spans;
};

/// A conversation up to an answer, its last message.
struct RenderedAnswer {
  std::string text;
  size_t begin;  // bytes [begin, end) of the text the assistant wrote, its end token included;
  size_t end;    // begin is npos where the text does not begin as the prompt does
  bool marked;   // the template itself says so
};

/// A chat format: chatml (with the folder's default system prompt, if it has one), qwen3 (what the assistant
/// thought is left out of earlier answers), qwen3-no-think (its prompts end with an empty thought), llama-2,
/// llama-3, vicuna, none; or jinja, what the folder's own template says.
class ChatTemplate {
 public:
  /// `name` empty: what the folder's own template says, its `chat_template.jinja` or the `chat_template` of
  /// tokenizer_config.json.  A format's code stands only for a template whose text it was compared with, byte
  /// for byte (`proved_templates.h`), and where it is asked for by name.  InputError listing the known names
  /// when the name is unknown, and when there is no template or none we can read.
  static ChatTemplate load(const std::filesystem::path& folder, const std::string& name = "");
  static std::vector<std::string> known_names();
  static std::string joined_names();  // with commas between them

  /// InputError for an unknown role or an order the format cannot express, and for what the messages hold or
  /// the arguments say that it does not use.  With `generation_prompt` the text ends where the assistant's
  /// answer begins.
  RenderedChat render(const std::vector<Message>& messages, bool generation_prompt,
                      const TemplateArguments& arguments = nullptr) const;
  /// The same where nobody asks what the assistant wrote, for which a folder's own template is rendered twice
  /// for each of its answers.
  std::string text(const std::vector<Message>& messages, bool generation_prompt,
                   const TemplateArguments& arguments = nullptr) const;
  /// The last message, an answer, behind `prompt`, which is the text of those before it.
  RenderedAnswer answer(const std::vector<Message>& messages, std::string_view prompt,
                        const TemplateArguments& arguments = nullptr) const;

  const std::string& name() const { return name_; }
  /// The rendered text has all the BOS tokens it should have: do not add another.
  bool text_has_bos() const { return text_has_bos_; }
  std::string hash() const;  // 16 hex digits of name, default system prompt and what else decides the text

 private:
  static ChatTemplate of_format(const std::string& name, const nlohmann::json& config);
  /// jinja::Unsupported where the folder's own template asks for what we lack, of a few conversations.
  void try_conversations() const;
  /// The folder's own template where it is what writes this conversation; null: this format's code does.
  const JinjaChat* own_for(const std::vector<Message>& messages, const TemplateArguments& arguments) const;
  /// Takes what differs between templates of one format from the Jinja text of this folder's.
  void read_details(const std::string& jinja);

  void render_chatml(const std::vector<Message>& messages, bool generation_prompt, RenderedChat& chat) const;
  void render_qwen3(const std::vector<Message>& messages, bool generation_prompt, RenderedChat& chat) const;
  void render_llama2(const std::vector<Message>& messages, RenderedChat& chat) const;
  void render_llama3(const std::vector<Message>& messages, bool generation_prompt, RenderedChat& chat) const;
  void render_vicuna(const std::vector<Message>& messages, bool generation_prompt, RenderedChat& chat) const;

  std::string name_;
  std::string default_system_;  // used when the first message is not the system's
  std::optional<std::string>
      preamble_;     // llama-3.1: what every system message begins with; it is never left out
  std::string bos_;  // text of the BOS token, for formats that write it
  std::string eos_;
  bool writes_bos_ = false;
  bool trims_ = false;  // whitespace around contents is dropped
  bool text_has_bos_ = true;
  std::shared_ptr<const JinjaChat> jinja_;  // of the format jinja
  std::shared_ptr<const JinjaChat> own_;    // of a format that stands for the folder's own
};

}  // namespace clover::data
