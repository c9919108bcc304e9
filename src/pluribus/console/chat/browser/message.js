// One message in the tree. All text of others ends in text nodes.

import { Icon } from "./icons.js";
import { clock, hue, initials, marked, parts, plain } from "./text.js";

const CLIP_CHARS = 1200;
const CLIP_LINES = 14;
const INDENTS_MAX = 8;

export const Message = {
  components: { Icon },
  props: { node: Object, me: String, active: Boolean, answering: Boolean, query: String, hit: Boolean, faint: Boolean, version: Number },
  emits: ["answer", "fold", "resize"],
  computed: {
    by() {
      return plain(this.node.by);
    },
    time() {
      return clock(this.node.at);
    },
    iso() {
      const at = new Date(this.node.at * 1000);
      return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
    },
    clipped() {
      const body = this.node.body ?? "";
      return body.length > CLIP_CHARS || body.split("\n", CLIP_LINES + 1).length > CLIP_LINES;
    },
    parts() {
      void this.version;
      if (this.node.body === null) return [{ kind: "gone", text: "not kept here" }];
      let body = this.node.body;
      if (this.clipped && !this.node.whole) body = body.split("\n").slice(0, CLIP_LINES).join("\n").slice(0, CLIP_CHARS) + " …";
      return marked(parts(body), this.query);
    },
    answers() {
      void this.version;
      return this.node.answers.length;
    },
    unread() {
      void this.version;
      return this.node.unread;
    },
    rails() {
      return Math.min(this.node.depth, INDENTS_MAX);
    },
    deep() {
      return this.node.depth > INDENTS_MAX ? this.node.depth : 0;
    },
    hue() {
      return hue(this.node.by);
    },
    letters() {
      return initials(this.node.by);
    },
    label() {
      void this.version;
      const answered = this.node.up ? ` answers ${plain(this.node.up.by)}` : "";
      const more = this.answers ? `, ${this.answers} ${this.answers === 1 ? "answer" : "answers"}` : "";
      return `${this.unread ? "Unread. " : ""}${this.by}${answered}, ${this.time}: ${plain(this.node.body ?? "not kept")}${more}`;
    },
    folded() {
      void this.version;
      return !this.node.open;
    },
  },
  mounted() {
    this.$el._node = this.node;
    this.$emit("resize", this.$el, true);
  },
  updated() {
    this.$el._node = this.node;
  },
  beforeUnmount() {
    this.$emit("resize", this.$el, false);
  },
  template: `
<div class="message" role="treeitem" :id="'m' + node.id" :aria-level="node.depth + 1" :aria-setsize="node.beside"
  :aria-posinset="node.place" :aria-expanded="answers ? String(!folded) : undefined" :aria-selected="String(answering)"
  :aria-label="label" :class="{ active, answering, unread, hit, faint, mine: node.by === me, root: !node.depth }"
  :style="{ '--rails': rails, '--hue': hue }" @click="$emit('answer', node)">
  <span v-if="rails" class="rails" aria-hidden="true"></span>
  <span class="avatar" aria-hidden="true">{{ letters }}</span>
  <div class="what">
    <div class="head">
      <bdi class="by">{{ by }}</bdi>
      <span v-if="deep" class="deep">level {{ deep }}</span>
      <time :datetime="iso">{{ time }}</time>
      <span v-if="unread" class="new">new</span>
      <button type="button" tabindex="-1" class="quiet reply" :aria-label="'Answer ' + by" @click.stop="$emit('answer', node)"><Icon name="answer" /><span>Answer</span></button>
    </div>
    <div class="body" dir="auto"><template v-for="(part, at) in parts" :key="at"
      ><a v-if="part.kind === 'link'" :href="part.href" :title="part.href" target="_blank" rel="noopener noreferrer nofollow"
        :class="{ marked: part.mark }" @click.stop>{{ part.text }}</a
      ><pre v-else-if="part.kind === 'block'" :class="{ marked: part.mark }"><code>{{ part.text }}</code></pre
      ><code v-else-if="part.kind === 'code'" :class="{ marked: part.mark }">{{ part.text }}</code
      ><span v-else-if="part.kind === 'hidden'" class="hidden-character">{{ part.text }}</span
      ><em v-else-if="part.kind === 'gone'" class="gone">{{ part.text }}</em
      ><mark v-else-if="part.mark">{{ part.text }}</mark
      ><template v-else>{{ part.text }}</template></template></div>
    <div v-if="clipped || answers" class="foot">
      <button v-if="clipped" type="button" tabindex="-1" class="quiet" @click.stop="node.whole = !node.whole; $emit('fold', null)">
        {{ node.whole ? "Show less" : "Show all" }}</button>
      <button v-if="answers" type="button" tabindex="-1" class="quiet fold" :class="{ folded }"
        @click.stop="$emit('fold', node)"><Icon name="fold" />{{ answers }} {{ answers === 1 ? "answer" : "answers" }}</button>
    </div>
  </div>
</div>`,
};
