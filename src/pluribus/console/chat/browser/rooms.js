// The rooms of this person, invitations to others, and a new one.

import { Icon } from "./icons.js";
import { plain } from "./text.js";

export const Rooms = {
  components: { Icon },
  props: { lobby: Object, room: String },
  emits: ["open", "join", "refuse", "create", "close"],
  data: () => ({ name: "", about: "" }),
  methods: {
    plain,
    begin() {
      this.name = this.about = "";
      this.$refs.dialog.showModal();
    },
    create() {
      if (!this.name.trim()) return;
      this.$emit("create", this.name.trim(), this.about.trim());
      this.$refs.dialog.close();
    },
    count: (members) => (members === 1 ? "1 member" : `${members} members`),
  },
  template: `
<nav class="rooms" aria-label="Rooms">
  <header>
    <span class="brand">Pluribus</span>
    <bdi class="me" :title="'You are ' + plain(lobby.me)">{{ plain(lobby.me) }}</bdi>
    <button type="button" class="plain phone" aria-label="Close the list of rooms" @click="$emit('close')"><Icon name="close" /></button>
  </header>
  <div class="lists">
    <section v-if="lobby.invitations.length" class="invitations" aria-labelledby="invitations-title">
      <h2 id="invitations-title">Invitations</h2>
      <div v-for="found in lobby.invitations" :key="found.name" class="invitation" :data-room="found.name">
        <bdi class="name">{{ plain(found.name) }}</bdi>
        <p v-if="found.about"><bdi>{{ plain(found.about) }}</bdi></p>
        <p class="small">{{ count(found.count) }}<template v-if="found.count">: <bdi>{{ plain(found.members.join(", ")) }}{{ found.count > found.members.length ? " …" : "" }}</bdi></template></p>
        <div class="buttons">
          <button type="button" class="strong" :aria-label="'Join ' + plain(found.name)" @click="$emit('join', found.name)">Join</button>
          <button type="button" class="weak" :aria-label="'Refuse ' + plain(found.name)" @click="$emit('refuse', found.name)">Refuse</button>
        </div>
      </div>
      <p v-if="lobby.more" class="small none">and {{ lobby.more }} more</p>
    </section>
    <section aria-labelledby="rooms-title">
      <h2 id="rooms-title">Rooms</h2>
      <ul>
        <li v-for="found in lobby.rooms" :key="found.name">
          <button type="button" class="room" :data-room="found.name" :aria-current="found.name === room ? 'page' : undefined" @click="$emit('open', found.name)">
            <span class="sign" aria-hidden="true">#</span><bdi class="name">{{ plain(found.name) }}</bdi>
            <span v-if="found.unread" class="badge">{{ found.unread > 999 ? "999+" : found.unread }}<span class="sr"> unread</span></span>
          </button>
        </li>
      </ul>
      <p v-if="!lobby.rooms.length" class="small none">You are in no room yet.</p>
    </section>
    <section v-if="lobby.others.length" aria-labelledby="others-title">
      <h2 id="others-title">Refused or left</h2>
      <ul>
        <li v-for="found in lobby.others" :key="found.name" class="other">
          <bdi class="name">{{ plain(found.name) }}</bdi>
          <button type="button" class="quiet" :aria-label="'Join ' + plain(found.name)" @click="$emit('join', found.name)">Join</button>
        </li>
      </ul>
    </section>
  </div>
  <footer><button type="button" class="new-room" @click="begin"><Icon name="add" />New room</button></footer>
  <dialog ref="dialog" aria-labelledby="new-room-title">
    <form @submit.prevent="create">
      <h2 id="new-room-title">New room</h2>
      <label>Name<input v-model="name" required maxlength="80" autocomplete="off" /></label>
      <label>What it is about<input v-model="about" maxlength="512" autocomplete="off" /></label>
      <p class="small">Everybody on this bus is invited.</p>
      <div class="buttons">
        <button type="button" class="weak" @click="$refs.dialog.close()">Cancel</button>
        <button type="submit" class="strong">Create</button>
      </div>
    </form>
  </dialog>
</nav>`,
};
