// The messages of one room as trees, in whatever order they come. The same function of the messages as
// `History.tree` in conversations/history.py: answers stand by their writers' clocks, then by identity; an answer whose
// question is not here stands alone until it comes; a circle, which only a forger writes, hangs below its least identity.

function before(a, b) {
  return a.at < b.at || (a.at === b.at && a.id < b.id);
}

export class Forest {
  constructor() {
    this.nodes = new Map();
    this.roots = [];
    this.awaited = new Map(); // by identity of a question that is not here: its answers
  }

  // A row is [identity, identity of the parent or null, writer, time in seconds, text or null, is it unread]
  add(row) {
    const [id, parent, by, at, body, unread] = row;
    const known = this.nodes.get(id);
    if (known) return known;
    const node = { id, parent, by, at, body, unread: Boolean(unread), answers: [], up: null, open: true, whole: false };
    this.nodes.set(id, node);
    const up = parent === null || parent === id ? null : this.nodes.get(parent);
    this._hang(node, up ?? null);
    if (parent !== null && parent !== id && !up) {
      if (!this.awaited.has(parent)) this.awaited.set(parent, []);
      this.awaited.get(parent).push(node);
    }
    for (const answer of this.awaited.get(id) ?? []) this._move(answer, node);
    this.awaited.delete(id);
    return node;
  }

  _hang(node, up) {
    const beside = up ? up.answers : this.roots;
    let low = 0;
    let high = beside.length;
    if (high && before(beside[high - 1], node)) low = high; // the usual case
    while (low < high) {
      const middle = (low + high) >> 1;
      if (before(beside[middle], node)) low = middle + 1;
      else high = middle;
    }
    beside.splice(low, 0, node);
    node.up = up;
  }

  _unhang(node) {
    const beside = node.up ? node.up.answers : this.roots;
    beside.splice(beside.indexOf(node), 1);
  }

  // The question of a root has come.
  _move(node, up) {
    const circle = [];
    for (let above = up; above; above = above.up) {
      circle.push(above);
      if (above === node) {
        const least = circle.reduce((a, b) => (a.id < b.id ? a : b));
        if (least === node) return;
        this._unhang(least);
        this._hang(least, null);
        break;
      }
    }
    this._unhang(node);
    this._hang(node, up);
  }

  // Nodes from top to bottom with their depth; not what is below a closed one, and of what `wanted` (a set) has only.
  flat(wanted = null) {
    const found = [];
    const stack = [];
    const push = (nodes, depth) => {
      const shown = wanted ? nodes.filter((node) => wanted.has(node)) : nodes;
      for (let at = shown.length - 1; at >= 0; at--) {
        const node = shown[at];
        node.depth = depth;
        node.place = at + 1;
        node.beside = shown.length;
        stack.push(node);
      }
    };
    push(this.roots, 0);
    while (stack.length) {
      const node = stack.pop();
      node.row = found.length;
      found.push(node);
      if (node.answers.length && (node.open || wanted)) push(node.answers, node.depth + 1);
    }
    return found;
  }

  // All of whom some wanted node is below, and those.
  withAbove(nodes) {
    const found = new Set();
    for (const node of nodes) {
      for (let above = node; above && !found.has(above); above = above.up) found.add(above);
    }
    return found;
  }

  // Open all that is above, so that a node is shown.
  reveal(node) {
    for (let above = node.up; above; above = above.up) above.open = true;
  }
}
