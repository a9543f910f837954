// Starts Swagger UI on the document of this instance: families of operations one below the other,
// a search over all of their words, and with a token the schemas that the caller may use.
"use strict";

const Domicile = (system) => {
  const h = system.React.createElement;

  const words = (operation) =>
    ["method", "path", "id"].map((name) => operation.get(name))
      .concat(["summary", "description"].map((name) => operation.getIn(["operation", name])))
      .join(" ").toLowerCase();

  // Operations that have all words of the phrase, in their own texts or in the name of their tag.
  const opsFilter = (groups, phrase) => {
    const wanted = phrase.toLowerCase().split(/\s+/).filter(Boolean);
    return groups
      .map((group, tag) => group.update("operations", (operations) => operations.filter((one) => {
        const text = `${tag.toLowerCase()} ${words(one)}`;
        return wanted.every((word) => text.includes(word));
      })))
      .filter((group) => group.get("operations").size > 0);
  };

  // One list of operations for each family of the document.
  const operations = (Operations) => (props) => {
    const { specSelectors } = props;
    const all = specSelectors.taggedOperations();
    const families = specSelectors.specJson().get("x-tagGroups");
    const listed = families.map((family) => {
      const own = all.filter((_, tag) => family.get("tags").includes(tag));
      if (own.size === 0) return null;
      const selectors = { ...specSelectors, taggedOperations: () => own };
      return h("section", { key: family.get("name") },
        h("h2", { className: "family" }, family.get("name")),
        h(Operations, { ...props, specSelectors: selectors }));
    });
    return h("div", null, all.size ? listed.toArray() : h("p", null, "No operation has all of these words."));
  };

  // The guide stays folded, so that the operations are what one sees first.
  const InfoContainer = (Container) => (props) => {
    const Markdown = system.getComponent("Markdown", true);
    const source = system.specSelectors.specJson().getIn(["info", "description"]);
    return h("div", null,
      h(Container, props),
      h("details", { className: "guide" },
        h("summary", null, "Guide: getting in, values, filters, pages, policies, sending again"),
        h(Markdown, { source })));
  };
  const selectInfoDescriptionField = () => () => "";

  const FilterContainer = ({ layoutActions, layoutSelectors }) =>
    h("div", { className: "filter-container" },
      h("div", { className: "filter wrapper" },
        h("input", {
          className: "operation-filter-input",
          type: "search",
          placeholder: "Search the operations",
          "aria-label": "Search the operations",
          value: typeof layoutSelectors.currentFilter() === "string" ? layoutSelectors.currentFilter() : "",
          onChange: (event) => layoutActions.updateFilter(event.target.value || true),
        })));

  // With another token, or with none any more, the document has other schemas.
  const reload = (action) => (...given) => {
    const result = action(...given);
    system.specActions.download();
    return result;
  };

  return {
    fn: { opsFilter },
    components: { FilterContainer },
    wrapComponents: { operations, InfoContainer },
    statePlugins: {
      spec: { wrapSelectors: { selectInfoDescriptionField } },
      auth: { wrapActions: { authorizeOauth2: reload, logout: reload } },
    },
  };
};

let ui;
ui = SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#interface",
  plugins: [Domicile],
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  filter: true,
  validatorUrl: null,
  requestInterceptor: (request) => {
    if (request.loadSpec) {
      const token = ui?.authSelectors.authorized()?.getIn(["client", "token", "access_token"]);
      if (token) request.headers.Authorization = `Bearer ${token}`;
    }
    return request;
  },
});

if (matchMedia("(prefers-color-scheme: dark)").matches) {
  document.documentElement.classList.add("dark-mode");
}
