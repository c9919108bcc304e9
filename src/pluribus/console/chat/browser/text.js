// Text of others, cut into parts that are shown as text. Nothing here makes markup: every part ends in a text node, and
// a link's address is checked. Links are http and https; code stands between back-quotes; nothing else means anything.

const FENCE = /```(?:[\w+-]*\n)?([\s\S]*?)```/g;
const CODE = /`([^`\n]+)`/g;
// No blanks, quotes, angles, nor characters that turn or hide text.
const LINK = /https?:\/\/[^\s<>"'`\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]+/gi;
// Characters that turn the direction of text or are not to be seen; joiners, which words and pictures need, are left.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
const LINK_CHARS_MAX = 2048;

// Names and titles: on one line, without characters that turn text.
export function plain(text) {
  return String(text ?? "").replace(/\s+/g, " ").replace(HIDDEN, "\ufffd");
}

function cut(text, pattern, found, rest) {
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > at) parts.push(...rest(text.slice(at, match.index)));
    parts.push(...found(match));
    at = match.index + match[0].length;
  }
  if (at < text.length) parts.push(...rest(text.slice(at)));
  return parts;
}

const words = (text) =>
  cut(
    text,
    HIDDEN,
    ([found]) => [{ kind: "hidden", text: "U+" + found.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") }],
    (rest) => [{ kind: "text", text: rest }],
  );

function trimmed(link) {
  let end = link.length;
  while (end > 0) {
    const last = link[end - 1];
    const head = link.slice(0, end);
    const unopened = last === ")" && head.split(")").length > head.split("(").length;
    if (!".,;:!?…*_".includes(last) && !unopened) break;
    end -= 1;
  }
  return link.slice(0, end);
}

// The address to open, or null if it is not one that may be.
export function address(text) {
  try {
    const url = new URL(text);
    const web = url.protocol === "https:" || url.protocol === "http:";
    return web && !url.username && !url.password ? url.href : null;
  } catch {
    return null;
  }
}

const links = (text) =>
  cut(
    text,
    LINK,
    ([found]) => {
      if (found.length > LINK_CHARS_MAX) return [{ kind: "text", text: found }];
      const link = trimmed(found);
      const href = address(link);
      const after = found.slice(link.length);
      const part = href ? { kind: "link", text: link, href } : { kind: "text", text: link };
      return after ? [part, { kind: "text", text: after }] : [part];
    },
    words,
  );

export function parts(body) {
  return cut(
    String(body),
    FENCE,
    ([, code]) => [{ kind: "block", text: code.replace(/\n$/, "").replace(HIDDEN, "\ufffd") }],
    (text) => cut(text, CODE, ([, code]) => [{ kind: "code", text: code.replace(HIDDEN, "\ufffd") }], links),
  );
}

// The parts again, with what was searched for in parts of its own, marked.
export function marked(found, query) {
  if (!query) return found;
  return found.flatMap((part) => {
    const text = part.text.toLowerCase();
    const pieces = [];
    let at = 0;
    for (let hit = text.indexOf(query); hit >= 0 && text.length === part.text.length; hit = text.indexOf(query, at)) {
      if (hit > at) pieces.push({ ...part, text: part.text.slice(at, hit) });
      pieces.push({ ...part, text: part.text.slice(hit, hit + query.length), mark: true });
      at = hit + query.length;
    }
    if (at < part.text.length) pieces.push({ ...part, text: part.text.slice(at) });
    return pieces.length ? pieces : [part];
  });
}

const CLOCK = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat([], { day: "numeric", month: "short" });

export function clock(seconds) {
  const at = new Date(seconds * 1000);
  if (Number.isNaN(at.getTime())) return "";
  return at.toDateString() === new Date().toDateString() ? CLOCK.format(at) : `${DAY.format(at)}, ${CLOCK.format(at)}`;
}

// A colour for a name, the same on every screen.
export function hue(name) {
  let found = 7;
  for (const letter of name) found = (found * 31 + letter.codePointAt(0)) % 3600;
  return (found * 137) % 360;
}

export function initials(name) {
  const letters = plain(name).split(/[\s._-]+/).filter(Boolean).map((word) => [...word][0]);
  return (letters.length > 1 ? letters[0] + letters.at(-1) : (letters[0] ?? "?")).toUpperCase();
}
