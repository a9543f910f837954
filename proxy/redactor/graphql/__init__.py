"""GraphQL requests and answers, read by the parsed operation (graphql-core)."""
