//! `/api/v1/openapi.json`: what can be asked under `/api`, for programs. The document is a file, which a test makes of the types themselves
//! and compares.

pub const PATH: &str = "/api/v1/openapi.json";
/// `OpenAPI` 3.1.
pub const DOCUMENT: &str = include_str!("golden/openapi.json");

#[cfg(test)]
mod tests;
