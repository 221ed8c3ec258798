// A batch spec as lines `name: value`, each value YAML of one line.

const PLAIN = /^[A-Za-z_][\w/@.:*-]*$/;
const WORDS = /^(true|false|null|yes|no|on|off|y|n|\.?nan|\.?inf)$/i;

/** A text in double quotes; what YAML takes for a line break, or for nothing, by its number. */
const inQuotes = (text) =>
  JSON.stringify(text).replace(
    /[\u007f-\u009f\u2028\u2029\ufeff]/g,
    (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

/** A value of JSON as YAML in one line. */
export function flow(value) {
  if (typeof value === "string") {
    return PLAIN.test(value) && !WORDS.test(value) && !value.endsWith(":") ? value : inQuotes(value);
  }
  if (Array.isArray(value)) return `[${value.map(flow).join(", ")}]`;
  if (value && typeof value === "object") {
    return `{${Object.entries(value).map(([name, each]) => `${flow(name)}: ${flow(each)}`).join(", ")}}`;
  }
  return JSON.stringify(value ?? null);
}

/** Fields as text. */
export const lineText = (fields) => Object.entries(fields).map(([name, value]) => `${name}: ${flow(value)}\n`).join("");
