// The tree of messages of one room: only what is seen is drawn. The tree itself has the keyboard's focus and names the
// message that is active (aria-activedescendant), so the focus does not vanish with what is scrolled away.

import { nextTick } from "vue";
import { Heights } from "./heights.js";
import { Icon } from "./icons.js";
import { Message } from "./message.js";
import { plain } from "./text.js";

const OVER_PX = 400; // drawn above and below what is seen
const READ_MS = 900; // seen so long, a message is read

export const Threads = {
  components: { Icon, Message },
  props: { forest: Object, version: Number, me: String, room: String, answering: String, query: String, earlier: Number },
  emits: ["answer", "read", "earlier", "hits"],
  data: () => ({ from: 0, to: 0, above: 0, below: 0, active: "", hit: -1, unreadAbove: 0, unreadBelow: 0, drawn: 0 }),
  created() {
    this.heights = new Heights();
    this.rows = [];
    this.hits = [];
    this.found = new Set();
    this.seen = new Map();
    this.anchor = null;
    this.following = true;
    this.roomBefore = this.room;
    this.observer = new ResizeObserver((entries) => this.resized(entries));
  },
  mounted() {
    this.observer.observe(this.$refs.scroll);
    this.timer = setInterval(() => this.look(), 300);
    this.lay();
    this.begin();
  },
  beforeUnmount() {
    this.observer.disconnect();
    clearInterval(this.timer);
  },
  watch: {
    version() {
      this.lay();
    },
    query() {
      this.hit = -1;
      this.lay();
      if (this.hits.length) this.turn(1);
    },
    forest() {
      this.seen.clear();
      if (this.room === this.roomBefore) {
        const node = this.anchor && this.forest.nodes.get(this.anchor.node.id);
        this.anchor = node ? { node, offset: this.anchor.offset } : null;
        this.lay();
        return;
      }
      this.roomBefore = this.room;
      this.heights = new Heights();
      this.heights.width = this.$refs.scroll.clientWidth;
      this.active = "";
      this.anchor = null;
      this.lay();
      this.begin();
    },
  },
  computed: {
    shown() {
      void this.drawn;
      return this.rows.slice(this.from, this.to);
    },
    activeHere() {
      return this.shown.some((node) => node.id === this.active) ? "m" + this.active : undefined;
    },
    hitId() {
      return this.hit >= 0 && this.hits[this.hit] ? this.hits[this.hit].id : "";
    },
    label() {
      return `Messages in ${plain(this.room)}`;
    },
  },
  methods: {
    // Where to begin: at the first unread message, or at the end.
    async begin() {
      await nextTick();
      const first = this.rows.find((node) => node.unread);
      this.following = !first;
      if (first) this.show(first, "top");
      else this.toEnd();
    },
    lay() {
      let wanted = null;
      this.hits = [];
      if (this.query) {
        for (const node of this.forest.nodes.values()) {
          if (`${node.by}\n${node.body ?? ""}`.toLowerCase().includes(this.query)) this.hits.push(node);
        }
        this.found = new Set(this.hits);
        wanted = this.forest.withAbove(this.hits);
      }
      this.rows = this.forest.flat(wanted);
      if (this.query) this.hits.sort((a, b) => a.row - b.row);
      this.$emit("hits", this.hit + 1, this.hits.length);
      this.heights.lay(this.rows);
      this.place();
    },
    // Keep what is seen where it is, whatever changed above it, and draw what is to be seen now.
    place() {
      const scroll = this.$refs.scroll;
      if (!scroll) return;
      if (this.following) {
        this.draw(Math.max(0, this.heights.total - scroll.clientHeight));
        nextTick(() => this.toEnd());
        return;
      }
      if (this.anchor && this.rows[this.anchor.node.row] === this.anchor.node) {
        const top = this.heights.top(this.anchor.node.row) + this.anchor.offset;
        if (Math.abs(top - scroll.scrollTop) > 1) {
          this.draw(top);
          nextTick(() => {
            scroll.scrollTop = top;
          });
          return;
        }
      }
      this.draw(scroll.scrollTop);
    },
    draw(top) {
      const height = this.$refs.scroll.clientHeight;
      this.from = this.heights.at(top - OVER_PX);
      this.to = Math.min(this.rows.length, this.heights.at(top + height + OVER_PX) + 1);
      this.above = this.heights.top(this.from);
      this.below = this.heights.total - this.heights.top(this.to);
      this.drawn += 1;
      this.count(top, height);
    },
    // Unread messages that are out of sight.
    count(top, height) {
      const first = this.heights.at(top);
      const last = this.heights.at(top + height);
      let above = 0;
      let below = 0;
      for (const node of this.forest.nodes.values()) {
        if (!node.unread) continue;
        if (this.rows[node.row] !== node) above += 1;
        else if (node.row < first) above += 1;
        else if (node.row > last) below += 1;
      }
      this.unreadAbove = above;
      this.unreadBelow = below;
    },
    scrolled() {
      const scroll = this.$refs.scroll;
      const top = scroll.scrollTop;
      this.following = top + scroll.clientHeight >= this.heights.total - 24;
      const row = this.heights.at(top);
      this.anchor = this.rows[row] ? { node: this.rows[row], offset: top - this.heights.top(row) } : null;
      this.draw(top);
    },
    resized(entries) {
      let changed = false;
      for (const entry of entries) {
        if (entry.target === this.$refs.scroll) {
          if (this.heights.width !== entry.target.clientWidth) this.heights.measured.clear();
          this.heights.width = entry.target.clientWidth;
          changed = true;
        } else if (entry.target.isConnected && entry.target._node) {
          changed = this.heights.measure(entry.target._node.id, entry.target.getBoundingClientRect().height) || changed;
        }
      }
      if (changed) {
        this.heights.lay(this.rows);
        this.place();
      }
    },
    observe(element, begins) {
      if (begins) this.observer.observe(element);
      else this.observer.unobserve(element);
    },
    toEnd() {
      const scroll = this.$refs.scroll;
      if (scroll) scroll.scrollTop = scroll.scrollHeight;
    },
    // Scroll so far that a message is seen.
    show(node, where = "near") {
      this.forest.reveal(node);
      if (this.rows[node.row] !== node) this.lay();
      const scroll = this.$refs.scroll;
      const top = this.heights.top(node.row);
      const bottom = this.heights.top(node.row + 1);
      let to = scroll.scrollTop;
      if (where === "top") to = top - 60;
      else if (top < to + 8) to = top - 8;
      else if (bottom > to + scroll.clientHeight - 8) to = bottom - scroll.clientHeight + 8;
      to = Math.max(0, to);
      this.following = node.row === this.rows.length - 1;
      this.anchor = { node, offset: to - top };
      this.draw(to);
      nextTick(() => {
        scroll.scrollTop = to;
      });
    },
    // What is seen for a while, in a window that somebody looks at, is read.
    look() {
      if (document.visibilityState !== "visible" || !document.hasFocus()) return;
      const scroll = this.$refs.scroll;
      const now = performance.now();
      const seen = new Map();
      const read = [];
      const last = this.heights.at(scroll.scrollTop + scroll.clientHeight - 12);
      for (let row = this.heights.at(scroll.scrollTop + 12); row <= last && row < this.rows.length; row++) {
        const node = this.rows[row];
        if (!node.unread) continue;
        const since = this.seen.get(node.id) ?? now;
        if (now - since >= READ_MS) read.push(node.id);
        else seen.set(node.id, since);
      }
      this.seen = seen;
      if (read.length) this.$emit("read", read);
    },
    activate(node) {
      this.active = node.id;
      this.show(node);
    },
    answer(node) {
      this.active = node.id;
      this.$emit("answer", node.id);
    },
    fold(node) {
      if (node) {
        node.open = !node.open;
        if (!node.open) this.active = node.id;
      }
      this.following = false;
      this.lay();
    },
    nextUnread(back = false) {
      const unread = [...this.forest.nodes.values()].filter((node) => node.unread);
      unread.forEach((node) => this.forest.reveal(node));
      this.lay();
      unread.sort((a, b) => a.row - b.row);
      const from = this.heights.at(this.$refs.scroll.scrollTop + (back ? 0 : this.$refs.scroll.clientHeight));
      const found = back ? unread.findLast((node) => node.row < from) : unread.find((node) => node.row >= from);
      const node = found ?? unread[0];
      if (node) {
        this.active = node.id;
        this.show(node, "top");
      }
    },
    // The next hit of the search, or the one before.
    turn(step) {
      if (!this.hits.length) return;
      this.hit = (this.hit + step + this.hits.length) % this.hits.length;
      this.activate(this.hits[this.hit]);
      this.$emit("hits", this.hit + 1, this.hits.length);
    },
    focus() {
      this.$refs.tree.focus();
    },
    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.$refs.tree) return;
      const node = this.forest.nodes.get(this.active);
      const row = node && this.rows[node.row] === node ? node.row : -1;
      const at = (to) => this.rows.length && this.activate(this.rows[Math.max(0, Math.min(to, this.rows.length - 1))]);
      const keys = {
        ArrowDown: () => at(row < 0 ? this.heights.at(this.$refs.scroll.scrollTop + 12) : row + 1),
        ArrowUp: () => at(row < 0 ? this.rows.length - 1 : row - 1),
        Home: () => at(0),
        End: () => at(this.rows.length - 1),
        PageDown: () => at(this.heights.at(this.heights.top(row) + this.$refs.scroll.clientHeight * 0.9)),
        PageUp: () => at(this.heights.at(this.heights.top(row) - this.$refs.scroll.clientHeight * 0.9)),
        ArrowRight: () => node && (node.open ? node.answers.length && at(row + 1) : this.fold(node)),
        ArrowLeft: () => node && (node.open && node.answers.length ? this.fold(node) : node.up && this.activate(node.up)),
        Enter: () => node && this.answer(node),
        " ": () => node && this.answer(node),
        n: () => this.nextUnread(),
      };
      if (keys[event.key]) {
        event.preventDefault();
        keys[event.key]();
      }
    },
    focused() {
      if (!this.forest.nodes.has(this.active) && this.rows.length) {
        this.active = this.rows[Math.min(this.heights.at(this.$refs.scroll.scrollTop + 12), this.rows.length - 1)].id;
      }
    },
  },
  template: `
<div class="threads">
  <div class="scroll" ref="scroll" @scroll.passive="scrolled">
    <button v-if="earlier" type="button" class="earlier" @click="$emit('earlier')">Show {{ earlier.toLocaleString() }} earlier messages</button>
    <div class="tree" ref="tree" role="tree" tabindex="0" :aria-label="label" :aria-activedescendant="activeHere"
      @keydown="key" @focus="focused">
      <div role="presentation" :style="{ height: above + 'px' }"></div>
      <Message v-for="node in shown" :key="node.id" :node="node" :me="me" :version="drawn" :query="query"
        :active="node.id === active" :answering="node.id === answering" :hit="node.id === hitId" :faint="Boolean(query) && !found.has(node)"
        @answer="answer" @fold="fold" @resize="observe" />
      <div role="presentation" :style="{ height: below + 'px' }"></div>
    </div>
    <div v-if="!rows.length" class="nothing"><p>{{ query ? "Nothing was found." : "Nothing was said here yet." }}</p></div>
  </div>
  <button v-if="unreadAbove" type="button" class="pill top" @click="nextUnread(true)"><Icon name="up" />{{ unreadAbove }} unread above</button>
  <button v-if="unreadBelow" type="button" class="pill bottom" @click="nextUnread(false)"><Icon name="down" />{{ unreadBelow }} unread below</button>
</div>`,
};
