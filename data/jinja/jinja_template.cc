#include "data/jinja/jinja_template.h"

#include "data/jinja/renderer.h"

namespace clover::data {

JinjaTemplate::Rendered JinjaTemplate::render(const json& variables) const {
  return jinja::Renderer(program_, variables).render();
}

}  // namespace clover::data
