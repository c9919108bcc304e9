// Who is in the room, and who of them is here now.

import { Icon } from "./icons.js";
import { hue, initials, plain } from "./text.js";

export const Members = {
  components: { Icon },
  props: { members: Array, me: String },
  emits: ["leave", "close"],
  computed: {
    here() {
      return this.members.filter(([, here]) => here).map(([name]) => name);
    },
    away() {
      return this.members.filter(([, here]) => !here).map(([name]) => name);
    },
  },
  methods: { hue, initials, plain },
  template: `
<aside class="members" aria-label="Members">
  <header><h2>Members</h2><button type="button" class="plain phone" aria-label="Close the list of members" @click="$emit('close')"><Icon name="close" /></button></header>
  <div class="lists">
    <section v-for="[title, names, state] in [['Here', here, 'here'], ['Away', away, 'away']]" v-show="names.length" :key="state" :aria-label="title">
      <h3>{{ title }} <span class="number">{{ names.length }}</span></h3>
      <ul>
        <li v-for="name in names" :key="name" class="member" :class="state" :data-member="name">
          <span class="avatar" aria-hidden="true" :style="{ '--hue': hue(name) }">{{ initials(name) }}</span>
          <bdi>{{ plain(name) }}</bdi><span v-if="name === me" class="small">you</span><span class="sr">, {{ state }}</span>
        </li>
      </ul>
    </section>
  </div>
  <footer><button type="button" class="quiet" @click="$emit('leave')"><Icon name="leave" />Leave this room</button></footer>
</aside>`,
};
