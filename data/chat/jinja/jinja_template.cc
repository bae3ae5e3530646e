#include "data/chat/jinja/jinja_template.h"

#include "data/chat/jinja/renderer.h"

namespace clover::data {

JinjaTemplate::Rendered JinjaTemplate::render(const json& variables) const {
  return jinja::Renderer(program_, variables).render();
}

}  // namespace clover::data
