// How high each row is: measured where it was drawn, guessed where not. So a long list scrolls although only what is
// seen is drawn.

const LINE_PX = 21;
const ROW_PX = 51;
const ANSWERS_PX = 22;
const CLIPPED_LINES = 16;

export class Heights {
  constructor() {
    this.measured = new Map();
    this.tops = new Float64Array(1);
    this.rows = [];
    this.width = 600;
  }

  guess(node) {
    const chars = Math.max(20, (this.width - 80 - 20 * Math.min(node.depth, 8)) / 7.4);
    const body = node.body ?? "";
    const lines = Math.ceil(body.length / chars) + (body.includes("\n") ? body.split("\n").length - 1 : 0);
    const more = (node.answers.length ? ANSWERS_PX : 0) + (node.depth ? 0 : 6);
    return ROW_PX + more + LINE_PX * Math.max(0, Math.min(lines, CLIPPED_LINES) - 1);
  }

  lay(rows) {
    this.rows = rows;
    if (this.tops.length < rows.length + 1) this.tops = new Float64Array(2 * rows.length + 1);
    let top = 0;
    for (let at = 0; at < rows.length; at++) {
      this.tops[at] = top;
      top += this.measured.get(rows[at].id) ?? this.guess(rows[at]);
    }
    this.tops[rows.length] = top;
  }

  get total() {
    return this.tops[this.rows.length];
  }

  top(row) {
    return this.tops[Math.max(0, Math.min(row, this.rows.length))];
  }

  // The row at a place, from above.
  at(px) {
    let low = 0;
    let high = Math.max(0, this.rows.length - 1);
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= px) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  // Whether that is new.
  measure(id, px) {
    if (px <= 0 || Math.abs((this.measured.get(id) ?? -1) - px) < 0.5) return false;
    this.measured.set(id, px);
    return true;
  }
}
